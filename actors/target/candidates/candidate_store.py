"""The seam between a target's rounds and what waits to be verified: one store for each kind of candidates.

The verifier of a session decides which store holds its candidates. A round asks every store about all of its sessions, and a store that holds nothing of a
session says so. Nobody else tells the kinds apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.actors.exchange.candidates import Candidates
from outrider.actors.frozen.frozen_candidates import FrozenBatch
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.candidate_pools import Grafted

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]

Arrived = Candidates | FrozenBatch
"""What a drafter sends; read alike."""

NO_COLUMN = -1
"""Of a candidate that is in no pool: its drafter stated no probability."""


# Views of one empty array: made eight at a time, several times a round.
_none: Callable[[], Int64s] = np.zeros(0, np.int64).view
_no_values: Callable[[], Float64s] = np.zeros(0).view


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """Candidates of one store for a pass, those of an entry one behind the other, parents first."""

    tokens: float
    """Tokens that the pass is expected to commit with them."""

    floor: float = 0.0
    """What a candidate had to be worth: the tokens that the target commits in the time of a row, 0 to 1."""

    entries_N: Int64s = field(default_factory=_none)
    """The entry of each: its place among the sessions that decode."""

    tokens_N: Int64s = field(default_factory=_none)

    parents_N: Int64s = field(default_factory=_none)
    """Index of the parent among the entry's candidates, -1 for the text."""

    depths_N: Int64s = field(default_factory=_none)
    """Tokens from the start of the text to each, itself included."""

    columns_N: Int64s = field(default_factory=_none)
    """Column in the pool, or `NO_COLUMN`."""

    drafters_N: Int64s = field(default_factory=_none)
    """Who proposed each, by number."""

    estimates_N: Float64s = field(default_factory=_no_values)
    """Probability of each, given its parent, as it was stated; 1 where none was."""

    values_N: Float64s = field(default_factory=_no_values)
    """Probability that its path is drawn, as far as drafters are believed; 0 where none was stated."""

    @classmethod
    def united(cls, parts: Sequence[Chosen]) -> Chosen:
        """Those of all stores, by entry; an entry's are of one store."""
        some = [part for part in parts if len(part.entries_N)]
        if len(some) < 2:
            return some[0] if some else cls(tokens=0.0)
        order = np.argsort(np.concatenate([part.entries_N for part in some]), kind="stable")
        arrays: dict[str, Any] = {
            one.name: np.concatenate([getattr(part, one.name) for part in some])[order]
            for one in fields(cls)
            if one.name.endswith("_N")
        }
        return cls(tokens=some[-1].tokens, **arrays)


class NodeFate(NamedTuple):
    """What became of one candidate."""

    drafter: int
    """Number; negative: the target."""

    depth: int
    """Tokens from the root of the round to this one, this one included."""

    estimate: float
    """The drafter's, that the target draws it if it draws its parent."""

    fate: str


class CandidateStore(Protocol):
    """Candidates of one kind, of all sessions. Sessions are named by their rows in the table."""

    survives: bool
    """Whether candidates outlive a verdict: those for an older text may go on below the new one, so an answer to the older text is of use."""

    def hope(self, speculation: Speculation) -> float:
        """Tokens that a pass over a session's candidates is taken to commit before one has.

        Args:
            speculation: The session's options.
        """
        ...

    def graft(self, found: Arrived, rows_E: Int64s, number: int) -> Grafted:
        """Takes in a drafter's candidates, all of them for texts that are, were or may become those of their sessions.

        Args:
            found: Of its kind, an entry a session.
            rows_E: The sessions, none twice.
            number: The drafter.
        """
        ...

    def has(self, rows_E: Int64s) -> Bools:
        """Which sessions have something to verify below their text."""
        ...

    def open(self, rows_E: Int64s) -> Float64s:
        """Probability that each text leaves its candidates where more could follow: 1 without any, 0 where more are of no use."""
        ...

    def is_complete(self, rows_E: Int64s) -> Bools:
        """In lockstep: which of its sessions that have candidates have all that their drafters send for their text."""
        ...

    def choose(self, rows_E: Int64s, *, num_rows: int, num_nodes: int, tokens: float) -> Chosen:
        """What the next pass takes.

        Args:
            rows_E: The sessions that decode, one at least.
            num_rows: Rows that the pass has already.
            num_nodes: How many of those are candidates.
            tokens: That it is expected to commit so far.
        """
        ...

    def fates(
        self, row: int, committed: tuple[int, ...], columns: set[int], *, is_over: bool
    ) -> Iterator[NodeFate]:
        """What becomes of the candidates that were not in the pass, when it commits these tokens; those that stay are left out.

        Args:
            row: The session.
            committed: The tokens.
            columns: Of those that were in the pass.
            is_over: The text ends with them.
        """
        ...

    def advance(self, rows_E: Int64s) -> Int64s:
        """Goes along with texts that have grown. Returns how many candidates of each were dropped unverified."""
        ...

    def clear(self, row: int) -> None:
        """A session is over."""
        ...
