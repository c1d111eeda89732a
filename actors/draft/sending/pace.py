"""When candidates go out to a target: as late as they are still in time, because trees grow until then. Pure.

A verdict says when the target can take candidates into a pass again, and how long it then waits for some. Candidates that arrive earlier are of no use yet,
and each message costs both sides, so they gather until the target can use them. While it waits, they go out as soon as the next draft pass would add fewer
tokens than the target commits in the time of that pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from outrider.actors.exchange.frames import since_s
from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation import learning
from outrider.actors.speculation.learning import Delay

LEAST_TRIP = 0.1
"""The way to a target and back takes at least this part of a pass: without a network, too, both ends handle messages and a draft pass is under way."""


class TargetPace:
    """What is known of one target's passes."""

    def __init__(self, round_trip_s: float) -> None:
        """
        Args:
            round_trip_s: Seconds to the target and back, as the first message took them.
        """
        self.floor = 0.0
        """Path probability that a candidate needs to be worth its row there."""
        self._trip = Delay(mean_s=round_trip_s)
        """To the target and back, with what both ends take to hand messages on: a way may change, and a machine be busy."""
        self.pass_s = 0.0
        """Seconds of its last pass, with the mean wait before one; 0: it has not said."""
        self._tokens = 0.0
        """Mean tokens of a pass over all sessions of this drafter."""
        self._sessions = 0.0
        """Mean number of these sessions in a pass."""
        self._use_at = -math.inf
        """When to send at the latest for the target's next pass."""
        self._wait_s = 0.0
        """How much later is still in time, because the target waits."""
        self.passes_before = 0
        """Passes that end between a verdict and the arrival of an immediate answer, because of the network. Each commits at least one token, so
        candidates for these tokens are of no use."""

    def told(
        self,
        target: TargetActivity,
        num_tokens: int,
        now: float,
        *,
        num_sessions: int,
        echo_us: int = 0,
    ) -> None:
        """Takes in a frame of verdicts.

        Args:
            target: What the target does next.
            num_tokens: Tokens that were committed.
            now: When the frame came, in seconds.
            num_sessions: Sessions of the frame.
            echo_us: As `Verdicts.echo_us`.
        """
        if echo_us:
            most_s = learning.SURPRISE * max(self._trip.mean_s, LEAST_TRIP * target.pass_s)
            self._trip.observe(min(max(since_s(echo_us, now), 0.0), most_s))
        self.floor = target.floor
        weight = learning.PASSES if self.pass_s > 0.0 else 0.0
        self._tokens = weight * self._tokens + (1.0 - weight) * num_tokens
        self._sessions = weight * self._sessions + (1.0 - weight) * num_sessions
        self.pass_s = target.pass_s
        # What comes too late is of use a pass later, what goes out too early has grown a little less.
        self._use_at = now + target.free_s - self._trip.mean_s - self._trip.spread_s
        self._wait_s = target.wait_s
        self.passes_before = 0
        if target.pass_s > 0.0:
            late_s = max(self._trip.soonest_s() - target.wait_s, 0.0)
            self.passes_before = math.floor(late_s / target.pass_s)

    @property
    def fetch_cost(self) -> float:
        """Tokens lost where a verdict leads to a candidate that was not sent: what its session would commit until it arrives. At most 1, because a
        pass without candidates commits one; 1 while the target has said nothing."""
        if not (self.pass_s > 0.0 and self._sessions > 0.0):
            return 1.0
        passes = max(self._trip.soonest_s() / self.pass_s, LEAST_TRIP)
        return min(passes * max(self._tokens / self._sessions, 1.0), 1.0)

    def is_due(self, now: float, next_s: float, gain: Callable[[], float]) -> bool:
        """Whether what was not sent goes out before the next draft pass.

        Args:
            now: Seconds.
            next_s: Seconds of that pass.
            gain: Tells the tokens that it adds to the target's next pass.
        """
        ready = now + next_s
        if ready <= self._use_at:
            return False
        if self._wait_s > 0.0 and ready <= self._use_at + self._wait_s:
            return gain() * self.pass_s <= self._tokens * next_s
        return True

    def sent(self, now: float, *, is_awaited: bool = False) -> None:
        """Notes that candidates went out. The next ones are for the pass after theirs.

        Args:
            now: Seconds.
            is_awaited: The target still waits for candidates of other sessions.
        """
        if is_awaited and now <= self._use_at + self._wait_s:
            return
        self._wait_s = 0.0
        if self.pass_s > 0.0 and math.isfinite(self._use_at):
            missed = max(math.floor((now - self._use_at) / self.pass_s), 0)
            self._use_at += self.pass_s * (1 + missed)
