"""Two ways of drafting with one model, chosen for each session by its verifier.

Verifiers that ask for nothing but tokens get trees of likely draws, grown without end; those that test frozen trees get
tokens drawn from the model. Both share the model's slots, and take turns if both have work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.actors.draft.frozen.frozen_drafter import SampledDrafter
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import Drafter, DraftPass, Noted
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodPass(DraftPass):
    """A pass of one of the methods."""

    method: Drafter
    inner: DraftPass


class DrafterByVerifier:
    """Hands each session to the method that its verifier needs."""

    def __init__(
        self, sessions: DraftSessions, *, coupled: AutoregressiveDrafter, sampled: SampledDrafter
    ) -> None:
        """Takes the two methods, which use the same sessions and engine."""
        self._coupled = coupled
        self._methods: tuple[Drafter, ...] = (coupled, sampled)
        self._methods_S = np.zeros(len(sessions.sessions), np.int64)
        """Index of each session's method."""
        self._is_first_last = True
        """The first method had the last pass."""

    @property
    def engine(self) -> Engine:
        """Of both methods."""
        return self._coupled.engine

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time, by both methods together."""
        return self._coupled.num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self._coupled.num_free_slots

    @property
    def note(self) -> str:
        """See `Noted`: that of the method that grows trees."""
        return self._coupled.note if isinstance(self._coupled, Noted) else ""

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: The session is not one that its method can serve.
        """
        is_sampled = VERIFIERS[session.speculation.verifier].needs_frozen_tree
        self._methods_S[session.row] = is_sampled
        self._of(session).attach(session)

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot."""
        self._of(session).detach(session)

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        foreseen_E = np.zeros(len(rows_E), np.int64)
        for method, own in self._parts(rows_E):
            foreseen_E[own] = method.follow(rows_E[own], tokens_ET[own], counts_E[own])
        return foreseen_E

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`."""
        self._of(session).rewrite(session, keep)

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        complete_E = np.zeros(len(rows_E), np.bool_)
        for method, own in self._parts(rows_E):
            complete_E[own] = method.is_complete(rows_E[own])
        return complete_E

    def plan(self, rows_E: Int64s) -> DraftPass | None:
        """See `Drafter`: a pass of the method that had no turn last, if it has work."""
        parts = self._parts(rows_E)
        if self._is_first_last:
            parts.reverse()
        for method, own in parts:
            inner = method.plan(rows_E[own])
            if inner is not None:
                self._is_first_last = method is self._methods[0]
                return MethodPass(
                    batch=inner.batch,
                    rows_E=inner.rows_E,
                    gains_E=inner.gains_E,
                    seconds=inner.seconds,
                    method=method,
                    inner=inner,
                )
        return None

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`."""
        assert isinstance(plan, MethodPass), "it is this method's own"
        return plan.method.grow(plan.inner, logits)

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`."""
        assert isinstance(plan, MethodPass), "it is this method's own"
        plan.method.took(plan.inner, seconds)

    def _of(self, session: DraftSession) -> Drafter:
        return self._methods[int(self._methods_S[session.row])]

    def _parts(self, rows_E: Int64s) -> list[tuple[Drafter, Int64s]]:
        """The methods of these sessions, each with the places of its own among them."""
        methods_E = self._methods_S[rows_E]
        parts = ((method, methods_E == index) for index, method in enumerate(self._methods))
        return [(method, own_E.nonzero()[0]) for method, own_E in parts if own_E.any()]
