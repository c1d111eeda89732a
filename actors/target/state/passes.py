"""One pass as arrays: the rows for the engine, and where each session's candidates are among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.engine.protocol import Batch
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import ranges, sizes_of, starts_of
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.state.session_table import Bools, SessionTable

NONE, LAST, ALL = range(3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """What is run. Entry e has nodes `starts_E[e]` to `starts_E[e + 1]`; prompts come first."""

    batch: Batch
    """The rows: of each entry committed tokens, then its candidates."""

    rows_E: Int64s
    """Row of the session in the table."""

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

    def decided_as(self, kind: int) -> Int64s:
        """Entries that draw, and whose candidates are of this kind."""
        entries: Int64s = (self.draws_E & (self.kinds_E == kind)).nonzero()[0]
        return entries

    def roots_E(self) -> Int64s:
        """Row of the logits that each entry's first draw is made from; its candidates' rows follow."""
        return np.array(self.batch.offsets[1:]) - 1 - sizes_of(self.starts_E)


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
        rows_E=rows_E,
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


def plain(pass_: Pass, entry: int, *, now: float) -> Pass:
    """One entry of a pass, without its candidates."""
    start, count = int(pass_.batch.starts_E[entry]), int(pass_.chains_E[entry])
    none = np.zeros(0, np.int64)
    one = slice(entry, entry + 1)
    return Pass(
        batch=Batch(
            slots_E=pass_.batch.slots_E[one],
            starts_E=np.array([0, count]),
            tokens_R=pass_.batch.tokens_R[start : start + count],
            parents_R=pass_.batch.parents_R[start : start + count],
            wanted_E=np.where(pass_.draws_E[one], LAST, NONE),
        ),
        rows_E=pass_.rows_E[one],
        chains_E=pass_.chains_E[one],
        draws_E=pass_.draws_E[one],
        starts_E=np.zeros(2, np.int64),
        entries_N=none,
        tokens_N=none,
        parents_N=none,
        depths_N=none,
        columns_N=none,
        drafters_N=none,
        estimates_N=np.zeros(0),
        kinds_E=np.zeros(1, np.int64),
        began_s=now,
        drafting=pass_.drafting,
        has_prompt=True,
    )
