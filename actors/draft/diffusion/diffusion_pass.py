"""The pass of a diffusion drafter: sessions that read the ends of their texts, and those that take another step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.diffusion.diffusion_engine import ALL, LAST, NONE
from outrider.actors.draft.model.model_pass import reading_of
from outrider.actors.draft.model.model_sessions import ModelSessions
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.engine.protocol import Batch
from outrider.actors.speculation.trees.ragged import starts_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiffusionPass(DraftPass):
    """See the module."""

    counts_E: Int64s
    """Tokens that each reads, or is told."""

    wanted_E: Int64s
    """As `Batch.wanted_E`."""

    @property
    def fills_E(self) -> NDArray[np.bool_]:
        """Whether a block of each is filled."""
        fills_E: NDArray[np.bool_] = self.wanted_E != NONE
        return fills_E

    def num_rows(self, block: int) -> int:
        """Rows that are computed, with blocks of so many tokens."""
        return rows_of(self.counts_E, self.wanted_E, block)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """Sessions of a pass with what each is given."""

    rows_E: Int64s
    counts_E: Int64s
    wanted_E: Int64s
    tokens_R: Int64s


def entries_of(
    sessions: DraftSessions,
    models: ModelSessions,
    reading: Int64s,
    steps: Int64s,
    told: Sequence[Sequence[int]],
    *,
    chunk: int,
    vocab_size: int,
) -> Entries:
    """Who does what.

    Args:
        sessions: The sessions.
        models: What is kept of them beside.
        reading: Those that read.
        steps: Those that take another step.
        told: What each of these is told.
        chunk: Tokens that are read, at most.
        vocab_size: Number of the model's token ids.
    """
    texts = reading_of(sessions, models, reading, chunk=chunk, vocab_size=vocab_size)
    told_R = np.array([token for one in told for token in one], np.int64)
    counts_T = np.array([len(one) for one in told], np.int64)
    return Entries(
        rows_E=np.concatenate((texts.rows_B, steps)),
        counts_E=np.concatenate((texts.counts_B, counts_T)),
        wanted_E=np.concatenate(
            (np.where(texts.is_read_B, LAST, NONE), np.full(len(steps), ALL))
        ),
        tokens_R=np.concatenate((texts.tokens_R, told_R)),
    )


def batch_of(entries: Entries, models: ModelSessions) -> Batch:
    """The rows of a pass: each token the child of the one before, the first that of the text."""
    starts_E = starts_of(entries.counts_E)
    firsts_R = np.repeat(starts_E[:-1], entries.counts_E)
    return Batch(
        slots_E=models.slots_S[entries.rows_E],
        starts_E=starts_E,
        tokens_R=entries.tokens_R,
        parents_R=np.arange(len(firsts_R)) - firsts_R - 1,
        wanted_E=entries.wanted_E,
    )


def rows_of(counts_E: Int64s, wanted_E: Int64s, block: int) -> int:
    """Rows that a pass computes: tokens that are read, and places of blocks."""
    num_blocks = int(np.count_nonzero(wanted_E != NONE))
    return int(counts_E[wanted_E != ALL].sum()) + num_blocks * (block - 1)
