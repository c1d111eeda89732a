"""A drafter that proposes chains of tokens from a session's own text, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter import LOOKAHEAD, DraftPass
from outrider.actors.draft.state.drafter_spec import LoadedDrafter
from outrider.actors.draft.trees.calibration import Rates, learn_walk
from outrider.actors.draft.trees.forest import ROOT
from outrider.actors.engine.protocol import Logits

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]

DEPTHS = 4
"""Tokens of a chain whose chance is learned one by one; deeper ones share the last one's."""


class Proposer(Protocol):
    """Proposes continuations of one session's text. Made anew when the text is replaced."""

    def propose(self, tokens: Sequence[int], depth: int) -> Iterable[tuple[int, Sequence[int]]]:
        """Chains that may follow a text, the best first.

        Args:
            tokens: The whole text, at least one token; what was there before is its beginning.
            depth: Tokens of a chain, at most; at least one.

        Returns:
            For each chain its kind, from 0 on, and its tokens. Chances are learned for each kind.
        """
        ...


class TextDrafter:
    """Grows trees from what a proposer makes of each session's text."""

    engine = None

    def __init__(
        self,
        sessions: DraftSessions,
        *,
        new_proposer: Callable[[], Proposer],
        priors: Sequence[float],
        max_ahead: int,
        lockstep: bool = False,
    ) -> None:
        """
        Args:
            sessions: With room for `max_ahead` nodes a tree.
            new_proposer: Makes the proposer of a session.
            priors: For each kind of chain, how often its first token is believed to be right before anything is observed.
            max_ahead: Nodes of one session, at most.
            lockstep: Propose no more than one target pass verifies, for comparison.
        """
        self._sessions = sessions
        self._forest = sessions.forest
        self._new_proposer = new_proposer
        self._max_ahead = max_ahead
        self._lockstep = lockstep
        of_kinds = ([prior, *[0.8] * (DEPTHS - 1)] for prior in priors)
        # Feature 0 is of nodes that say nothing of themselves.
        self._rates = Rates(np.array([0.25, *(rate for rates in of_kinds for rate in rates)]))
        self._proposers: dict[int, Proposer] = {}
        self._is_fresh_S = np.zeros(len(sessions.sessions), np.bool_)
        """The text grew since it was looked at."""

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return len(self._sessions.sessions)

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self.num_slots - len(self._proposers)

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session; there is some wherever there is a row for it."""
        self._proposers[session.row] = self._new_proposer()
        self._is_fresh_S[session.row] = True

    def detach(self, session: DraftSession) -> None:
        """Forgets a session."""
        del self._proposers[session.row]
        self._is_fresh_S[session.row] = False

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        walk = self._forest.walk(rows_E, tokens_ET)
        learn_walk(self._forest, rows_E, walk, rates=self._rates)
        stays_E = walk.reached_E == counts_E
        ends_E = walk.path_ET[np.arange(len(rows_E)), counts_E - 1]
        self._forest.reroot(rows_E[stays_E], ends_E[stays_E])
        self._forest.clear(rows_E[~stays_E])
        self._is_fresh_S[rows_E] = True
        return walk.reached_E

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`."""
        self._forest.clear(np.array([session.row]))
        self._proposers[session.row] = self._new_proposer()
        self._is_fresh_S[session.row] = True

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        return ~self._is_fresh_S[rows_E]

    def plan(self, rows_E: Int64s) -> DraftPass | None:
        """See `Drafter`: sessions whose text grew."""
        fresh_E = rows_E[self._is_fresh_S[rows_E]]
        if not len(fresh_E):
            return None
        return DraftPass(batch=None, rows_E=fresh_E, gains_E=np.ones(len(fresh_E)), seconds=0.0)

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`."""
        self._is_fresh_S[plan.rows_E] = False
        for row in plan.rows_E.tolist():
            self._propose(self._sessions.at(row))
        return plan.rows_E[self._forest.num_nodes_S[plan.rows_E] > 0]

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`; nothing depends on it."""

    def _propose(self, session: DraftSession) -> None:
        depth = session.speculation.max_depth * (1 if self._lockstep else LOOKAHEAD)
        depth = min(depth, session.final_length - session.length)
        if depth < 1:
            return
        for kind, chain in self._proposers[session.row].propose(session.tokens, depth):
            self._graft(session.row, 1 + kind * DEPTHS, chain[:depth])

    def _graft(self, row: int, feature: int, chain: Sequence[int]) -> None:
        """Hangs a chain into a session's tree, from the first token on that is not there yet."""
        forest = self._forest
        rows = np.array([row])
        walk = forest.walk(rows, np.array([chain], np.int64))
        known = int(walk.reached_E[0])
        parent = int(walk.path_ET[0, known - 1]) if known else ROOT
        room = self._max_ahead - int(forest.num_nodes_S[row])
        estimates = self._rates.estimates
        for depth, token in enumerate(chain[known : known + max(room, 0)], start=known + 1):
            of_depth = feature + min(depth, DEPTHS) - 1
            (parent,) = forest.add(
                rows_K=rows,
                parents_K=np.array([parent]),
                tokens_K=np.array([token]),
                estimates_K=estimates[of_depth : of_depth + 1].astype(np.float32),
                features_K=of_depth,
            ).tolist()


def text_drafter(
    settings: DraftSettings, new_proposer: Callable[[], Proposer], priors: Sequence[float]
) -> LoadedDrafter:
    """A loaded drafter that a proposer makes up; arguments as in `TextDrafter`."""
    sessions = DraftSessions(settings.num_slots, settings.max_ahead)
    drafter = TextDrafter(
        sessions,
        new_proposer=new_proposer,
        priors=priors,
        max_ahead=settings.max_ahead,
        lockstep=settings.lockstep,
    )
    return LoadedDrafter(sessions=sessions, drafter=drafter)
