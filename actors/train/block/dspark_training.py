"""What DSpark and DFlash learn of a block, and what is measured of them.

Source: DFlash, arXiv 2602.06036; DSpark, DeepSeek-AI and Peking University 2026. docs/dspark.md tells what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.train.block.block_evaluation import block_acceptance
from outrider.actors.train.block.block_objective import Blocks, Objective, block_loss
from outrider.actors.train.block.block_training import BlockTraining
from outrider.actors.train.block.dspark_options import DsparkTrainingOptions
from outrider.actors.train.features.drafter_card import DrafterCard, command_of, fits
from outrider.actors.train.features.state_training import Reports
from outrider.actors.train.features.training_rows import HeldOut

LATE = (0, 1, 2, 4)
"""Tokens whose states are late, in what is measured."""


class DsparkTraining(BlockTraining[DsparkTrainingOptions]):
    """See the module."""

    def _fresh(
        self, options: DsparkTrainingOptions, shape: dict[str, Any], tables: dict[str, torch.Tensor]
    ) -> BlockNet:
        own = options
        config = BlockConfig(
            **shape, rank=own.rank, has_confidence=own.rank > 0, most_revealed=own.most_revealed
        )
        return BlockNet(config, **tables)

    @property
    def objective(self) -> Objective:
        """See `BlockTraining`."""
        chosen = self.options.objective
        if chosen != "auto":
            return chosen
        return "overlap" if self.options.rank else "tokens"

    def loss(
        self, tokens_RL: torch.Tensor, features_RLKD: torch.Tensor, blocks: Blocks, first: int
    ) -> torch.Tensor:
        """See `RowTraining`."""
        features, last = features_RLKD[:, :, :-1], features_RLKD[:, :, -1]
        return block_loss(self.net, tokens_RL, features, last, blocks, self.objective)

    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """See `RowTraining`."""
        reports: Reports = {}
        for late in LATE:
            for told in (False, True) if late <= self.config.most_revealed else (False,):
                if late >= self.config.block or (told and not late):
                    continue
                how = (
                    "all states" if not late else f"{late} late, {'told' if told else 're-rooted'}"
                )
                reports[how] = {
                    name: block_acceptance(
                        self.net, one, self.target.output, lag=late, reveals=told
                    )
                    for name, one in held.items()
                }
        return reports

    def card(self, measured: str) -> str:
        """See `BlockTraining`."""
        config, options = self.config, self.options
        method = "DSpark (DeepSeek-AI and Peking University 2026)" if config.rank else "DFlash"
        heads = (
            f"Markov head of rank {config.rank} and confidence head" if config.rank else "no head"
        )
        told = f"; it may be told {config.most_revealed} tokens" if config.most_revealed else ""
        return DrafterCard(
            title="Block drafter",
            target=config.target,
            what=f"""Drafts for one target: {config.block} tokens in one pass from the target's hidden states. Method: {method} on DFlash's blocks (arXiv 2602.06036).
{fits(config.target_fingerprint)}""",
            shape=f"""{config.num_layers} blocks of width {config.width} with {config.num_heads} heads over the states of layers {", ".join(map(str, config.taps))} (embedding 0), window
{config.window}; {heads}{told}. Embedding and head are the target's, which are not stored.""",
            training=f"""`{command_of("dspark", options)}`:
at most {options.steps} steps of {options.rows_per_step} rows with {options.blocks_per_row} blocks each, by turns of text and of what the target wrote at temperatures 0.3 to 1.""",
            read=""" by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own. `late`: so many tokens were written since the newest states.""",
            measured=measured,
        ).render()
