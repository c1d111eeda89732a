"""The pass of a draft model: first sessions that read committed tokens, then those whose trees grow, in one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.actors.draft.model.fitting import STAND_IN
from outrider.actors.draft.model.model_sessions import ModelSessions
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.draft_cost import PassCost
from outrider.actors.draft.trees.forest import Bools, Float64s, Forest, Int64s
from outrider.actors.engine.protocol import WANTS, Batch
from outrider.actors.speculation.trees.ragged import ranges, rank_within, starts_of

_ALL = WANTS.index("all")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelPass(DraftPass):
    """A pass: first sessions that read committed tokens, then those with nodes."""

    counts_E: Int64s
    """Rows of each session."""
    num_reading: int
    """Sessions that read."""
    is_read_E: Bools
    """Of those that read: whether they come to the end of the text."""
    rows_K: Int64s
    """Session of each node."""
    nodes_K: Int64s
    values_K: Float64s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextReading:
    """Sessions that read."""

    rows_B: Int64s
    counts_B: Int64s
    """Tokens that each reads."""
    is_read_B: Bools
    """Whether it comes to the end of its text."""
    tokens_R: Int64s
    """The tokens, one session's behind another's."""


_NOTHING = np.zeros(0, np.int64)
NO_READING = TextReading(
    rows_B=_NOTHING, counts_B=_NOTHING, is_read_B=_NOTHING.astype(np.bool_), tokens_R=_NOTHING
)
"""Of no session."""


def reading_of(
    sessions: DraftSessions,
    models: ModelSessions,
    rows_B: Int64s,
    *,
    chunk: int,
    vocab_size: int,
) -> TextReading:
    """What sessions read of the committed tokens that the model has not seen, within a chunk.

    Args:
        sessions: The sessions.
        models: What is kept of them beside.
        rows_B: Those that may read.
        chunk: Tokens in all, at most; sessions that get none are left out.
        vocab_size: Number of the model's token ids.
    """
    if not len(rows_B):
        return NO_READING
    cached_B = models.cached_S[rows_B]
    lags_B = sessions.lengths_S[rows_B] - cached_B
    counts_B = np.clip(chunk - (np.cumsum(lags_B) - lags_B), 0, lags_B)
    some = counts_B > 0
    rows_B, cached_B, counts_B, lags_B = rows_B[some], cached_B[some], counts_B[some], lags_B[some]
    tokens_R = sessions.tokens_at(np.repeat(rows_B, counts_B), ranges(cached_B, counts_B))
    return TextReading(
        rows_B=rows_B,
        counts_B=counts_B,
        is_read_B=counts_B == lags_B,
        tokens_R=np.where(tokens_R < vocab_size, tokens_R, STAND_IN),
    )


def build(
    models: ModelSessions,
    forest: Forest,
    reading: TextReading,
    growing_G: Int64s,
    nodes: tuple[Int64s, Int64s, Float64s],
    *,
    floors_S: Float64s,
    next_yield: float,
    cost: PassCost,
) -> ModelPass:
    """Puts a pass together.

    Args:
        models: What is kept of sessions beside their trees.
        forest: The trees.
        reading: Who reads.
        growing_G: Sessions that may grow.
        nodes: What is run of their trees: of each node the place of its session among them, its column and its value.
        floors_S: Value of a candidate of each session that is worth its bytes and its row at the target, and no more.
        next_yield: What children are worth over that, as a part of what the nodes that are run are.
        cost: What a pass costs.
    """
    entries_K, nodes_K, values_K = nodes
    rows_K = growing_G[entries_K]
    counts_G = np.bincount(entries_K, minlength=len(growing_G))
    used_G = counts_G.nonzero()[0]
    rows_E, counts_E = growing_G[used_G], counts_G[used_G]
    wanted_E = np.empty(len(used_G), np.int64)
    wanted_E.fill(_ALL)
    over_K = np.maximum(values_K - floors_S[rows_K], 0.0)
    gains_G = np.bincount(entries_K, weights=over_K, minlength=len(growing_G))
    gains_E = gains_G[used_G].astype(np.float64, copy=False)
    places_K = forest.places(rows_K, nodes_K)
    tokens_R = forest.tokens_SM.take(places_K)
    above_K = forest.places(rows_K, forest.parents_SM.take(places_K))
    parents_R = forest.scratch_SM.take(above_K)
    if len(reading.tokens_R):
        rows_E = np.concatenate((reading.rows_B, rows_E))
        counts_E = np.concatenate((reading.counts_B, counts_E))
        wanted_E = np.concatenate((reading.is_read_B.astype(np.int64), wanted_E))
        texts_B = np.where(reading.is_read_B, 1.0 - floors_S[reading.rows_B], 0.0)
        gains_E = np.concatenate((texts_B, gains_E))
        tokens_R = np.concatenate((reading.tokens_R, tokens_R))
        chain_R = rank_within(np.repeat(reading.rows_B, reading.counts_B)) - 1
        parents_R = np.concatenate((chain_R, parents_R))
    batch = Batch(
        slots_E=models.slots_S[rows_E],
        starts_E=starts_of(counts_E),
        tokens_R=tokens_R.astype(np.int64),
        parents_R=parents_R.astype(np.int64),
        wanted_E=wanted_E,
    )
    return ModelPass(
        batch=batch,
        rows_E=rows_E,
        gains_E=next_yield * gains_E,
        seconds=cost.predict(batch.num_rows),
        counts_E=counts_E,
        num_reading=len(reading.counts_B),
        is_read_E=reading.is_read_B,
        rows_K=rows_K,
        nodes_K=nodes_K,
        values_K=values_K,
    )
