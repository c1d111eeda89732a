"""Training on blocks at random places of rows, one stage: what trainers of blocks share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.block.block_objective import Blocks, random_blocks
from outrider.actors.train.block.row_options import RowTrainingOptions
from outrider.actors.train.features.feature_cache import FeatureCache
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_training import (
    MEASURING,
    READING,
    WRITING,
    TurnTraining,
)
from outrider.actors.train.loop.schedule import schedule_of

BLOCKS = "blocks"
SHARES: Mapping[str, float] = {READING: 1.5, WRITING: 3.5, BLOCKS: 13.0, MEASURING: 2.0}
"""What each part gets of the time."""

Options = TypeVar("Options", bound=RowTrainingOptions)


class RowTraining(TurnTraining[Options]):
    """One call of a trainer. Subclasses say what is trained, on which loss, and what is measured and written."""

    def __init__(
        self,
        options: Options,
        target: FrozenTarget,
        net: nn.Module,
        *,
        folder: str,
        layers: tuple[Layer, ...],
        most_revealed: int,
    ) -> None:
        """Arguments as of `TurnTraining`, and:

        Args:
            options: What was asked for.
            target: What is foreseen.
            net: What is trained.
            folder: Name of the folder that gets it.
            layers: Of the target.
            most_revealed: Tokens that a block is told, at most.
        """
        super().__init__(options, target, folder=folder, layers=layers, shares=SHARES)
        self.net = net.to(target.device)
        self._most_revealed = most_revealed

    @abstractmethod
    def loss(
        self, tokens_RL: torch.Tensor, features_RLKD: torch.Tensor, blocks: Blocks, first: int
    ) -> torch.Tensor:
        """What a step descends.

        Args:
            tokens_RL: Rows of token ids.
            features_RLKD: The target's states at them, by layer.
            blocks: Blocks in them.
            first: Position of the first token that counts.
        """

    @property
    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """What progress on disk must agree with: the net's shape and its loss."""

    @abstractmethod
    def prepare(self, states_BLD: torch.Tensor) -> None:
        """Takes some of the target's last states in, before the first step."""

    def learn(self, caches: Sequence[FeatureCache]) -> None:
        """See `TurnTraining`."""
        options = self.options
        rows = [cache.num_rows for cache in caches]
        with torch.no_grad():
            _, features = caches[0].rows(np.arange(min(8, rows[0])))
            self.prepare(features[..., -self.target.width :])
        size = f"rows_per_step={options.rows_per_step} blocks_per_row={options.blocks_per_row} of {rows}"
        fingerprint = f"{json.dumps(self.shape, sort_keys=True)} {size}"
        loss = partial(self._step, caches)
        schedule = schedule_of(options, options.steps)
        self.fitting.fit(BLOCKS, self.net, loss, schedule, caches, fingerprint)

    def _step(self, caches: Sequence[FeatureCache], step: int) -> torch.Tensor:
        options = self.options
        cache, tokens, features = self.turn(caches, step)
        blocks = random_blocks(
            len(tokens),
            options.blocks_per_row,
            first=cache.key.first,
            length=options.row_length,
            block=options.block,
            most_revealed=self._most_revealed,
            generator=torch.Generator().manual_seed(options.seed * 1_000_003 + step),
            device=self.target.device,
        )
        return self.loss(tokens, features, blocks, cache.key.first)
