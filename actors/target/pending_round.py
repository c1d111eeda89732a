"""The last round of a target, until coordinators and drafters are told of it. The next pass does not depend on that, so they are told while it runs."""

from __future__ import annotations

from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.target.state.passes import Pass, Round
from outrider.actors.target.state.target_events import Output
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.telling import tell_coordinators, tell_drafters
from outrider.actors.target.verify.walks import Walks


class PendingRound:
    """Keeps the last round, and tells of it once."""

    def __init__(self, state: TargetState) -> None:
        """There was no round yet.

        Args:
            state: The sessions.
        """
        self._state = state
        self._unsaid: tuple[Pass, Round, Walks] | None = None
        """The round, if coordinators were not told of it."""
        self._untold: tuple[Round, TargetActivity, float] | None = None
        """The round, if drafters were not told of it. They are told after the next pass is planned, which may send them to rest with the same message."""

    def ended(
        self, pass_: Pass, done: Round, walks: Walks, target: TargetActivity, now: float
    ) -> None:
        """Takes in a round. All were told of the one before. Arguments: as of `tell_coordinators` and `tell_drafters`."""
        self._unsaid, self._untold = (pass_, done, walks), (done, target, now)
        if self._state.is_resting:
            # Drafters at rest are told nothing, except once that they rest. When they are woken they are told all that they missed.
            if (self._state.table.rested_S[done.rows_E] < 0).any():
                self.tell_all()
            self._untold = None

    def tell_all(self) -> None:
        """Tells coordinators and drafters."""
        self.tell_coordinators()
        self._tell_drafters()

    def take_outputs(self) -> list[Output]:
        """Tells everybody, and gives all that was queued: tokens first, as clients wait for them."""
        planned = self._state.take_outputs()
        self.tell_coordinators()
        tokens = self._state.take_outputs()
        self._tell_drafters()
        return tokens + planned + self._state.take_outputs()

    def tell_coordinators(self) -> None:
        """Tells coordinators, if they were not told."""
        if self._unsaid is not None:
            said, self._unsaid = self._unsaid, None
            tell_coordinators(self._state, *said)

    def _tell_drafters(self) -> None:
        if self._untold is not None:
            told, self._untold = self._untold, None
            tell_drafters(self._state, *told)
