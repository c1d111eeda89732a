"""The training of a diffusion drafter: on texts and on what the target itself writes, by turns, one stage.

Source: Christopher et al. 2024, arXiv 2408.05636. docs/diffusion.md tells what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from outrider.actors.draft.diffusion.denoising import ONE_STEP, DistanceRates
from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.draft.on_states.net_folder import save_folder
from outrider.actors.train.block.block_objective import Blocks
from outrider.actors.train.block.row_training import RowTraining
from outrider.actors.train.diffusion.diffusion_evaluation import diffusion_acceptance
from outrider.actors.train.diffusion.diffusion_objective import diffusion_loss
from outrider.actors.train.diffusion.diffusion_options import DiffusionTrainingOptions
from outrider.actors.train.features.drafter_card import DrafterCard, command_of
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_fitting import settings_of
from outrider.actors.train.features.state_training import Reports, names_of
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import DepthReport
from outrider.actors.train.training_errors import TrainError

STEPS = (2, 4)
"""Denoising steps of what is measured beside one."""

ONE = "1 step"
"""Its name in reports."""

OWN = "own, T = 1"
"""The held-out text whose rates a drafter begins with: what the target writes."""


class DiffusionTraining(RowTraining[DiffusionTrainingOptions]):
    """One call of the trainer."""

    net: DiffusionNet

    def __init__(self, options: DiffusionTrainingOptions, target: FrozenTarget) -> None:
        """Makes a fresh net.

        Raises:
            TrainError: The shape does not fit the target.
        """
        torch.manual_seed(options.seed)
        vocab_size, table_width = target.head_VD.shape
        try:
            self.config = DiffusionConfig(
                vocab_size=vocab_size,
                table_width=table_width,
                width=options.width,
                num_layers=options.num_layers,
                num_heads=options.num_heads,
                num_key_heads=options.num_key_heads,
                head_dim=options.width // options.num_heads,
                inner=options.inner,
                block=options.block,
                window=options.window,
                **names_of(target),
            )
        except ValueError as error:
            raise TrainError(str(error)) from error
        net = DiffusionNet(self.config, embedding_VD=target.embedding_VD, head_VD=target.head_VD)
        # A block of whose tokens all but the last may be told; one place is left to foresee.
        super().__init__(
            options,
            target,
            net,
            folder="diffusion",
            layers=("norm",),
            most_revealed=max(options.block - 2, 0),
        )

    @property
    def shape(self) -> dict[str, Any]:
        """See `RowTraining`."""
        return settings_of(self.config)

    def prepare(self, states_BLD: torch.Tensor) -> None:
        """The head is used to states of the target's size, and the layers to numbers of about one."""
        config = self.config
        size = float(states_BLD.square().mean().sqrt())
        torch.nn.init.orthogonal_(self.net.out_proj.weight, gain=size)
        torch.nn.init.orthogonal_(
            self.net.in_proj.weight,
            gain=float(self.target.embedding_VD.float().square().mean().rsqrt()),
        )
        assert config.width == len(self.net.mask_embed), "it was made so"

    def loss(
        self, tokens_RL: torch.Tensor, features_RLKD: torch.Tensor, blocks: Blocks, first: int
    ) -> torch.Tensor:
        """See `RowTraining`."""
        last, output = features_RLKD[:, :, -1], self.target.output
        return diffusion_loss(self.net, tokens_RL, last, output, blocks, first)

    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """See `RowTraining`: in one step, and in those that it makes the best."""

        def measured(starts: tuple[int, ...]) -> dict[str, DepthReport]:
            return {
                name: diffusion_acceptance(self.net, one, self.target.output, starts)
                for name, one in held.items()
            }

        first = measured(ONE_STEP)
        reports = {ONE: first}
        rates = first[OWN]
        for starts in DistanceRates(rates.first, rates.among_four).best_starts():
            if len(starts) in STEPS:
                told = ", ".join(map(str, starts))
                reports[f"{len(starts)} steps, told {told}"] = measured(starts)
        return reports

    def write(self, reports: Reports) -> None:
        """See `RowTraining`."""
        rates = reports[ONE][OWN]
        config = replace(self.config, first=rates.first, among=rates.among_four)
        card = _card(config, self.options, self.table(reports))
        save_folder(self.folder, self.net, config.as_json(), card)


def _card(config: DiffusionConfig, options: DiffusionTrainingOptions, measured: str) -> str:
    return DrafterCard(
        title="Diffusion drafter",
        target=config.target,
        what=f"""Drafts {config.block} tokens at once by masked diffusion, from the text alone: a block-causal form of SpecDiff (Christopher et al. 2024, arXiv 2408.05636).
It proposes; the target decides. It borrows the embedding and head of the target with the fingerprint `{config.target_fingerprint[:16]}`.""",
        shape=f"""{config.num_layers} layers of width {config.width} with {config.num_heads} heads ({config.num_key_heads} of keys), gated products of {config.inner}, window {config.window}.""",
        training=f"""`{command_of("diffusion", options)}`: at most {options.steps} steps of {options.rows_per_step} rows with
{options.blocks_per_row} blocks each, by turns of text (at most {options.text_rows} rows) and of what the target wrote at temperatures 0.3 to 1 (at most {options.own_rows} rows).""",
        read=""" by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own. A further step is `told` that many tokens, here those of the text.""",
        measured=measured,
    ).render()
