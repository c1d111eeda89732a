"""The training of a drafter of blocks that reads the target's states. What is learned of a block, subclasses say."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

import torch

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.on_states.net_folder import save_folder
from outrider.actors.train.block.block_options import BlockTrainingOptions
from outrider.actors.train.block.row_training import RowTraining
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_fitting import settings_of
from outrider.actors.train.features.state_training import Reports, names_of
from outrider.actors.train.features.target_shape_checks import taps_of
from outrider.actors.train.training_errors import TrainError

Options = TypeVar("Options", bound=BlockTrainingOptions)


class BlockTraining(RowTraining[Options]):
    """One call of a trainer."""

    net: BlockNet

    def __init__(self, options: Options, target: FrozenTarget) -> None:
        """Makes a fresh net.

        Args:
            options: What was asked for.
            target: What is foreseen.

        Raises:
            TrainError: The shape does not fit the target.
        """
        torch.manual_seed(options.seed)
        vocab_size, width = target.head_VD.shape
        try:
            net = self._fresh(
                options,
                {
                    "vocab_size": vocab_size,
                    "width": width,
                    "taps": taps_of(options.taps, target.num_blocks),
                    "num_layers": options.num_layers,
                    "num_heads": options.num_heads,
                    "num_key_heads": options.num_heads,
                    "head_dim": width // options.num_heads,
                    "inner": options.inner,
                    "block": options.block,
                    "window": options.window,
                    **names_of(target),
                },
                {"embedding_VD": target.embedding_VD, "head_VD": target.head_VD},
            )
        except ValueError as error:
            raise TrainError(str(error)) from error
        self.config = net.config
        super().__init__(
            options,
            target,
            net,
            folder=self.config.kind,
            layers=(*self.config.taps, "norm"),
            most_revealed=self.config.most_revealed,
        )

    @abstractmethod
    def _fresh(
        self, options: Options, shape: dict[str, Any], tables: dict[str, torch.Tensor]
    ) -> BlockNet:
        """The net of a shape, to which subclasses add. Raises ValueError where it does not fit."""

    @property
    @abstractmethod
    def objective(self) -> str:
        """What is learned; another one is another run."""

    @abstractmethod
    def card(self, measured: str) -> str:
        """The text of the folder's `README.md`."""

    @property
    def shape(self) -> dict[str, Any]:
        """See `RowTraining`."""
        return {**settings_of(self.config), "objective": self.objective}

    def prepare(self, states_BLD: torch.Tensor) -> None:
        """The head is used to states of the target's size."""
        self.net.norm.weight.copy_(states_BLD.square().mean((0, 1)).sqrt())

    def write(self, reports: Reports) -> None:
        """See `RowTraining`."""
        card = self.card(self.table(reports))
        save_folder(self.folder, self.net, self.config.as_json(), card)
