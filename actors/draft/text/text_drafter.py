"""A drafter that proposes small trees of tokens from what sessions have said, without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter import LOOKAHEAD, DraftPass
from outrider.actors.draft.state.drafter_spec import LoadedDrafter
from outrider.actors.draft.text.proposal import Proposal, Proposer
from outrider.actors.draft.trees.calibration import Rates, learn_walk
from outrider.actors.draft.trees.forest import ROOT, Bools, Int64s
from outrider.actors.engine.protocol import Logits

Told = Callable[[DraftSession], None]
"""Takes note of a session."""

UNSAID = 0.25
"""Estimate of feature 0, of nodes that say nothing of themselves; none of a proposal's has it."""


def ignore(session: DraftSession) -> None:
    """Takes no note."""


class TextDrafter:
    """Grows trees from what a proposer makes of each session's text."""

    engine = None

    def __init__(
        self,
        sessions: DraftSessions,
        *,
        new_proposer: Callable[[DraftSession], Proposer],
        priors: Sequence[float],
        max_ahead: int,
        lockstep: bool = False,
        joined: Told = ignore,
        left: Told = ignore,
    ) -> None:
        """
        Args:
            sessions: With room for `max_ahead` nodes a tree.
            new_proposer: Makes the proposer of a session.
            priors: For each kind of node, how often it is believed to be right before anything is observed.
            max_ahead: Nodes of one session, at most.
            lockstep: Propose no more than one target pass verifies, for comparison.
            joined: Told of a session that comes.
            left: Told of a session that goes, while its text is still there.
        """
        self._sessions = sessions
        self._forest = sessions.forest
        self._new_proposer = new_proposer
        self._max_ahead = max_ahead
        self._lockstep = lockstep
        self._joined, self._left = joined, left
        self._rates = Rates(np.array([UNSAID, *priors]))
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
        self._joined(session)
        self._proposers[session.row] = self._new_proposer(session)
        self._is_fresh_S[session.row] = True

    def detach(self, session: DraftSession) -> None:
        """Forgets a session."""
        del self._proposers[session.row]
        self._is_fresh_S[session.row] = False
        self._left(session)

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
        self._proposers[session.row] = self._new_proposer(session)
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
        rates = self._rates.estimates[1:].tolist()
        for row in plan.rows_E.tolist():
            self._propose(self._sessions.at(row), rates)
        return plan.rows_E[self._forest.num_nodes_S[plan.rows_E] > 0]

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`; nothing depends on it."""

    def _propose(self, session: DraftSession, rates: Sequence[float]) -> None:
        depth = session.speculation.max_depth * (1 if self._lockstep else LOOKAHEAD)
        depth = min(depth, session.final_length - session.length)
        if depth >= 1:
            proposer = self._proposers[session.row]
            proposal = proposer.propose(session.text_T, depth=depth, rates=rates)
            self._graft(session.row, proposal, rates)

    def _graft(self, row: int, proposal: Proposal, rates: Sequence[float]) -> None:
        """Hangs what is new of a proposal into a session's tree, as far as there is room."""
        forest = self._forest
        first = 1 + int(forest.num_nodes_S[row])
        room = self._max_ahead + 1 - first
        olds = zip(
            forest.parents_SM[row, 1:first].tolist(),
            forest.tokens_SM[row, 1:first].tolist(),
            strict=True,
        )
        columns = {place: column for column, place in enumerate(olds, start=1)}
        tokens: list[int] = []
        parents: list[int] = []
        kinds: list[int] = []
        placed: list[int | None] = []
        for token, parent, kind in zip(
            proposal.tokens, proposal.parents, proposal.kinds, strict=True
        ):
            above = ROOT if parent < 0 else placed[parent]
            column = None if above is None else columns.get((above, token))
            if above is not None and column is None and len(tokens) < room:
                column = columns[above, token] = first + len(tokens)
                tokens.append(token)
                parents.append(above)
                kinds.append(kind)
            placed.append(column)
        if tokens:
            forest.hang(
                row,
                tokens=tokens,
                parents=parents,
                estimates=[rates[kind] for kind in kinds],
                features=[1 + kind for kind in kinds],
            )


def text_drafter(
    settings: DraftSettings,
    new_proposer: Callable[[DraftSession], Proposer],
    priors: Sequence[float],
    *,
    joined: Told = ignore,
    left: Told = ignore,
) -> LoadedDrafter:
    """A loaded drafter that a proposer makes up; arguments as in `TextDrafter`."""
    sessions = DraftSessions(settings.num_slots, settings.max_ahead)
    drafter = TextDrafter(
        sessions,
        new_proposer=new_proposer,
        priors=priors,
        max_ahead=settings.max_ahead,
        lockstep=settings.lockstep,
        joined=joined,
        left=left,
    )
    return LoadedDrafter(sessions=sessions, drafter=drafter)
