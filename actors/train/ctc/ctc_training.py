"""What a CTC drafter learns of a block, and its comparison: the same module by cross-entropy, a slot for each token.

Source: Wen et al. 2024, arXiv 2412.00061. docs/ctc.md tells what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.ctc.ctc_config import CtcConfig
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.train.block.block_objective import Blocks, at_slots, block_loss, block_states
from outrider.actors.train.block.block_training import BlockTraining
from outrider.actors.train.ctc.ctc_evaluation import string_acceptance
from outrider.actors.train.ctc.ctc_objective import ctc_loss, prefix_loss
from outrider.actors.train.ctc.ctc_options import CtcTrainingOptions
from outrider.actors.train.features.drafter_card import DrafterCard, command_of, fits
from outrider.actors.train.features.state_training import Reports
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import TREE


class CtcTraining(BlockTraining[CtcTrainingOptions]):
    """See the module."""

    def _fresh(
        self, options: CtcTrainingOptions, shape: dict[str, Any], tables: dict[str, torch.Tensor]
    ) -> BlockNet:
        if options.loss == "cross_entropy":
            return BlockNet(BlockConfig(**shape, rank=0, has_confidence=False), **tables)
        return CtcNet(CtcConfig(**shape, labels=options.labels), **tables)

    @property
    def objective(self) -> str:
        """See `BlockTraining`."""
        return self.options.loss

    def loss(
        self, tokens_RL: torch.Tensor, features_RLKD: torch.Tensor, blocks: Blocks, first: int
    ) -> torch.Tensor:
        """See `RowTraining`."""
        features, last = features_RLKD[:, :, :-1], features_RLKD[:, :, -1]
        net = self.net
        if not isinstance(net, CtcNet):
            return block_loss(net, tokens_RL, features, last, blocks, "tokens")
        frames = net.frames(block_states(net, tokens_RL, features, blocks)).flatten(0, 1)
        labels_NL = at_slots(tokens_RL, blocks, self.options.labels, 1).flatten(0, 1)
        return (ctc_loss if self.objective == "ctc" else prefix_loss)(frames, labels_NL)

    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """See `RowTraining`."""
        output = self.target.output
        return {
            self.objective: {
                name: string_acceptance(self.net, one, output) for name, one in held.items()
            }
        }

    def card(self, measured: str) -> str:
        """See `BlockTraining`."""
        config, options = self.config, self.options
        if options.loss == "cross_entropy":
            what = f"{config.block} tokens in one pass, a slot for each, trained by cross-entropy: DFlash (arXiv 2602.06036)"
        else:
            what = (
                f"{options.labels} tokens in {config.block} frames of one pass, which hold tokens, repeats and blanks and are collapsed: "
                "CTC (Wen et al. 2024, arXiv 2412.00061)"
            )
        return DrafterCard(
            title="CTC drafter",
            target=config.target,
            what=f"""Drafts for one target, from its hidden states: {what}.
{fits(config.target_fingerprint)}""",
            shape=f"""Blocks of width {config.width}, {config.num_layers} of them, with {config.num_heads} heads and gated products of width {config.inner} over the states of layers
{", ".join(map(str, config.taps))} (embedding 0), window {config.window}. Embedding and head are the target's, which are not stored.""",
            training=f"""`{command_of("ctc", options)}`: at most {options.steps} steps of {options.rows_per_step} rows with {options.blocks_per_row} blocks each, by turns of text and of what the target wrote at temperatures
0.3 to 1.""",
            read=f""" by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own, of a chain of the likeliest tokens and of a tree of the {TREE} likeliest nodes.""",
            measured=measured,
        ).render()
