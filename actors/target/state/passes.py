"""One pass as arrays: the rows for the engine, where each session's candidates are among them, and what the pass commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outrider.actors.engine.protocol import Batch
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import ranges, sizes_of, starts_of
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.state.session_table import Bools, SessionTable

NONE, LAST, ALL = range(3)

OWN: Final = -1
"""Stands for the number of a drafter where the target itself proposed a token, or drew it against all candidates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """What is run. Entry e has nodes `starts_E[e]` to `starts_E[e + 1]`; prompts come first."""

    batch: Batch
    """The rows: of each entry committed tokens, then its candidates."""

    chains_E: Int64s
    """Committed tokens that are run, at least one."""

    draws_E: Bools
    """Tokens are drawn: the chain ends with the last committed token."""

    starts_E: Int64s
    """First node of each entry; one number more than there are entries."""

    entries_N: Int64s
    """The entry of each candidate."""

    tokens_N: Int64s
    """Token ids of the candidates."""

    parents_N: Int64s
    """Index of the parent among the entry's candidates, -1 for the text."""

    depths_N: Int64s
    """Tokens from the text to each, itself included."""

    columns_N: Int64s
    """Column in the pool, or `NO_COLUMN`."""

    drafters_N: Int64s
    """Who proposed each, by number."""

    estimates_N: NDArray[np.float64]
    """Probability of each, given its parent."""

    kinds_E: Int64s
    """Kind of its candidates, by which it is decided; 0 where there are none, which is decided as plain decoding is."""

    began_s: float
    """When it was planned, in seconds of the worker's clock."""

    drafting: bool
    """Drafters are at work."""

    has_prompt: bool
    """It holds tokens of prompts, so its time says nothing of others."""

    @property
    def rows_E(self) -> Int64s:
        """Row of each session in the table, which is its slot."""
        return self.batch.slots_E

    def decided_as(self, kind: int) -> Int64s:
        """Entries that draw, and whose candidates are of this kind."""
        entries: Int64s = (self.draws_E & (self.kinds_E == kind)).nonzero()[0]
        return entries

    def roots_E(self) -> Int64s:
        """Row of the logits that each entry's first draw is made from; its candidates' rows follow."""
        return np.array(self.batch.offsets[1:]) - 1 - sizes_of(self.starts_E)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """The entries of a pass that committed something. One row each."""

    entries_E: Int64s
    """Their places in the pass."""

    rows_E: Int64s
    """Rows of the table."""

    tokens_ET: Int64s
    counts_E: Int64s
    """What was committed."""

    origins_ET: Int64s
    """Number of the drafter that proposed each, `OWN` for the target."""

    over_E: Bools
    """The text is over."""

    stopped_E: Bools
    """It ended with a stop token."""

    drawn_N: Bools
    """Which candidates of the pass were drawn."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all sessions."""
        return int(self.counts_E.sum())


def build(
    table: SessionTable,
    *,
    prompts_P: Int64s,
    sizes_P: Int64s,
    rows_D: Int64s,
    chosen: Sequence[Chosen],
    now: float,
    drafting: bool,
) -> Pass:
    """Puts a pass together.

    Args:
        table: The sessions.
        prompts_P: Sessions whose prompts are run, and how many tokens of each.
        sizes_P: See `prompts_P`.
        rows_D: Sessions that decode.
        chosen: Candidates of those, by kind.
        now: Seconds of the worker's clock.
        drafting: As `Pass.drafting`.
    """
    rows_E = np.concatenate((prompts_P, rows_D))
    first = len(prompts_P)
    pending_E = table.lengths_S[rows_E] - table.cached_S[rows_E]
    chains_E = np.concatenate((sizes_P, pending_E[first:]))
    kinds_E = np.zeros(len(rows_E), np.int64)
    for kind, part in enumerate(chosen):
        kinds_E[first + part.entries_N] = kind
    nodes = Chosen.united(chosen)
    entries_N = nodes.entries_N + first
    counts_E = np.bincount(entries_N, minlength=len(rows_E))
    starts_R = starts_of(chains_E + counts_E)
    chain_at = ranges(starts_R[:-1], chains_E)
    node_at = ranges(starts_R[:-1] + chains_E, counts_E)
    tokens_R = np.empty(starts_R[-1], np.int64)
    parents_R = np.empty(starts_R[-1], np.int64)
    tokens_R[chain_at] = table.tokens_SL[
        rows_E.repeat(chains_E), ranges(table.cached_S[rows_E], chains_E)
    ]
    parents_R[chain_at] = ranges(-1, chains_E)
    tokens_R[node_at] = nodes.tokens_N
    parents_R[node_at] = nodes.parents_N + chains_E[entries_N]
    draws_E = chains_E == pending_E
    wanted_E = np.where(draws_E, np.where(counts_E > 0, ALL, LAST), NONE)
    return Pass(
        batch=Batch(
            slots_E=rows_E,
            starts_E=starts_R,
            tokens_R=tokens_R,
            parents_R=parents_R,
            wanted_E=wanted_E,
        ),
        chains_E=chains_E,
        draws_E=draws_E,
        starts_E=starts_of(counts_E),
        entries_N=entries_N,
        tokens_N=nodes.tokens_N,
        parents_N=nodes.parents_N,
        depths_N=nodes.depths_N - table.lengths_S[rows_E[entries_N]],
        columns_N=nodes.columns_N,
        drafters_N=nodes.drafters_N,
        estimates_N=nodes.estimates_N,
        kinds_E=kinds_E,
        began_s=now,
        drafting=drafting,
        has_prompt=bool((chains_E > 1).any()) or not draws_E.all(),
    )


def plain(table: SessionTable, pass_: Pass, entry: int, *, now: float) -> Pass:
    """One entry of a pass again, without its candidates. Its time teaches nothing, as that of a pass with a prompt."""
    one = slice(entry, entry + 1)
    alone = build(
        table,
        prompts_P=pass_.rows_E[one],
        sizes_P=pass_.chains_E[one],
        rows_D=np.zeros(0, np.int64),
        chosen=(),
        now=now,
        drafting=pass_.drafting,
    )
    return replace(alone, has_prompt=True)
