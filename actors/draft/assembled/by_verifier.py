"""Two ways of drafting with one model, chosen for each session by its verifier.

Verifiers that ask for nothing but tokens get trees of likely draws, grown without end; those that test frozen trees get
tokens drawn from the model. Both share the model's slots, and take turns if both have work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.frozen.frozen_drafter import SampledDrafter
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]

Method = AutoregressiveDrafter | SampledDrafter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodPass(DraftPass):
    """A pass of one of the methods."""

    method: Method
    inner: DraftPass


class DrafterByVerifier:
    """Hands each session to the method that its verifier needs."""

    def __init__(
        self, sessions: DraftSessions, *, coupled: AutoregressiveDrafter, sampled: SampledDrafter
    ) -> None:
        """Takes the two methods, which use the same sessions and engine."""
        self._sessions = sessions
        self._coupled = coupled
        self._sampled = sampled
        self._sampled_last = False

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

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: The session is not one that its method can serve.
        """
        self._sessions.is_frozen_S[session.row] = _is_sampled(session)
        self._of(session).attach(session)

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot."""
        self._of(session).detach(session)

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        frozen_E = self._sessions.is_frozen_S[rows_E]
        if not np.count_nonzero(frozen_E):
            return self._coupled.follow(rows_E, tokens_ET, counts_E)
        foreseen_E = np.zeros(len(rows_E), np.int64)
        for method, of_E in ((self._coupled, ~frozen_E), (self._sampled, frozen_E)):
            if of_E.any():
                foreseen_E[of_E] = method.follow(rows_E[of_E], tokens_ET[of_E], counts_E[of_E])
        return foreseen_E

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`."""
        self._of(session).rewrite(session, keep)

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        frozen_E = self._sessions.is_frozen_S[rows_E]
        complete_E = np.zeros(len(rows_E), np.bool_)
        complete_E[frozen_E] = self._sampled.is_complete(rows_E[frozen_E])
        complete_E[~frozen_E] = self._coupled.is_complete(rows_E[~frozen_E])
        return complete_E

    def plan(self, rows_E: Int64s) -> DraftPass | None:
        """See `Drafter`: a pass of the method that had no turn last, if it has work."""
        frozen_E = self._sessions.is_frozen_S[rows_E]
        turns: list[tuple[Method, Int64s]] = [(self._coupled, rows_E)]
        if np.count_nonzero(frozen_E):
            turns = [(self._coupled, rows_E[~frozen_E])]
            turns.insert(1 if self._sampled_last else 0, (self._sampled, rows_E[frozen_E]))
        for method, rows in turns:
            inner = method.plan(rows)
            if inner is not None:
                self._sampled_last = method is self._sampled
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

    def _of(self, session: DraftSession) -> Method:
        return self._sampled if _is_sampled(session) else self._coupled


def _is_sampled(session: DraftSession) -> bool:
    return VERIFIERS[session.speculation.verifier].needs_frozen_tree
