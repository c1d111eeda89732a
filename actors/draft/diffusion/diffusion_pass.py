"""The pass of a diffusion drafter: sessions that read the ends of their texts, and those that take another step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.actors.draft.diffusion.diffusion_engine import ALL, LAST, NONE
from outrider.actors.draft.model.model_pass import TextReading
from outrider.actors.draft.model.model_sessions import ModelSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.draft_cost import PassCost
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.engine.protocol import Batch
from outrider.actors.speculation.trees.ragged import starts_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiffusionPass(DraftPass):
    """See the module."""

    counts_E: Int64s
    """Tokens that each reads, or is told."""

    wanted_E: Int64s
    """As `Batch.wanted_E`."""

    num_rows: int
    """Rows that are computed: tokens that are read, and places of blocks."""

    @property
    def fills_E(self) -> Bools:
        """Whether a block of each is filled."""
        fills_E: Bools = self.wanted_E != NONE
        return fills_E


def pass_of(
    models: ModelSessions,
    texts: TextReading,
    steps: Int64s,
    told: Sequence[Sequence[int]],
    *,
    block: int,
    gain: Callable[[int, int], float],
    cost: PassCost,
) -> DiffusionPass:
    """Puts a pass together.

    Args:
        models: What is kept of sessions.
        texts: What is read.
        steps: Sessions that take another step.
        told: What each of these is told.
        block: Tokens of a block.
        gain: `DraftPass.gains_E` of a session and what is wanted of it.
        cost: What a pass costs.
    """
    counts_T = np.array([len(one) for one in told], np.int64)
    told_R = np.array([token for one in told for token in one], np.int64)
    rows_E = np.concatenate((texts.rows_B, steps))
    counts_E = np.concatenate((texts.counts_B, counts_T))
    reads_B = np.where(texts.is_read_B, LAST, NONE)
    wanted_E = np.concatenate((reads_B, np.full(len(steps), ALL)))
    starts_E = starts_of(counts_E)
    # Each token is the child of the one before, the first that of the text.
    firsts_R = np.repeat(starts_E[:-1], counts_E)
    num_blocks = int(np.count_nonzero(wanted_E != NONE))
    num_rows = int(texts.counts_B.sum()) + num_blocks * (block - 1)
    return DiffusionPass(
        batch=Batch(
            slots_E=models.slots_S[rows_E],
            starts_E=starts_E,
            tokens_R=np.concatenate((texts.tokens_R, told_R)),
            parents_R=np.arange(len(firsts_R)) - firsts_R - 1,
            wanted_E=wanted_E,
        ),
        rows_E=rows_E,
        gains_E=np.array(
            [gain(*one) for one in zip(rows_E.tolist(), wanted_E.tolist(), strict=True)]
        ),
        seconds=cost.predict(num_rows),
        counts_E=counts_E,
        wanted_E=wanted_E,
        num_rows=num_rows,
    )
