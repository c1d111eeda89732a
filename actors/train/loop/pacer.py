"""How many steps of a schedule fit the time, found by measuring the first ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median_low

from outrider.actors.train.loop.budget import StepDecision
from outrider.actors.train.loop.schedule import Schedule

FEWEST_SHORT = 2
"""Steps of ordinary rows that are measured at least, besides one of long rows and the very first, which does not count."""

EARLY = 0.1
"""Share of the allowance after which the decision is made with as few steps."""

TOLERANCE = 0.1
"""Share of the allowance by which a stage may be about to end late, or early, before its steps are decided again."""


class Pacer:
    """Shortens a schedule to the time that its stage may take; never beyond the recipe's length.

    Decides after a cycle of short and long rows. Should the machine get slower afterwards, the number is lowered again. Should
    it get faster, it is raised, as long as the rate has not begun to fall. At least one step is done.
    """

    def __init__(
        self,
        schedule: Schedule,
        left: Callable[[], float],
        minutes: float = 0.0,
        announce: Callable[[StepDecision, float], None] = lambda decision, seconds: None,
    ) -> None:
        """
        Args:
            schedule: The recipe's.
            left: Seconds that the stage may still take, infinite for no bound.
            minutes: The bound on the whole run, kept with the decision; 0 is none.
            announce: Is given every decision and the seconds that it will still take.
        """
        self.schedule = schedule
        self._recipe, self._left, self._minutes = schedule, left, minutes
        self._announce = announce
        self._decided = minutes == 0.0
        self._start = 0
        self._allowance = left()
        self._short: list[float] = []
        self._long: list[float] = []
        self._since: tuple[int, float] = (0, 0.0)

    def decision(self) -> StepDecision | None:
        """What was decided; None while it is being measured."""
        if not self._decided:
            return None
        return StepDecision(count=self.schedule.steps, of=self._recipe.steps, minutes=self._minutes)

    def resume(self, done: int, saved: StepDecision | None) -> None:
        """Goes on after `done` steps of an earlier call, with its decision if that still holds."""
        self._start = done
        self._since = (done, 0.0)
        if saved is not None and saved.holds(self._recipe.steps, self._minutes, done):
            self.schedule = self._recipe.lasting(saved.count)
            self._decided = True

    def after(self, done: int, seconds: float) -> None:
        """Takes note that `done` steps are done and the last one took `seconds`."""
        if self._minutes == 0.0:
            return
        if self._decided:
            self._review(done, seconds)
            return
        if done > self._start + 1:
            is_long = self._recipe.length_at(done - 1) != self._recipe.row_length
            (self._long if is_long else self._short).append(seconds)
        if self._left() <= 0.0:
            self._cut(done, seconds)
        elif self._has_measured(done):
            self._cut(done, self._pace())

    def follow(self, steps: int) -> None:
        """Takes over how many steps another pacer of the same schedule decided."""
        if steps != self.schedule.steps:
            self.schedule = self._of(steps)

    def finish(self) -> None:
        """All steps are done: what was too short to be measured needed no cut."""
        self._decided = True

    def _has_measured(self, done: int) -> bool:
        has_long = self._recipe.long_row_length != self._recipe.row_length
        if (has_long and not self._long) or len(self._short) < FEWEST_SHORT:
            return False
        is_early = self._left() < (1.0 - EARLY) * self._allowance
        return is_early or done - self._start >= self._recipe.long_every + 2

    def _pace(self) -> float:
        """Seconds a step, long ones in proportion."""
        if not self._long:
            return median_low(self._short)
        every = self._recipe.long_every
        return ((every - 1) * median_low(self._short) + median_low(self._long)) / every

    def _cut(self, done: int, pace: float) -> None:
        left = self._left()
        fitting = math.floor(left / pace) if pace > 0 else self._recipe.steps
        steps = min(self._recipe.steps, done + max(0, fitting))
        self.schedule = self._of(steps)
        self._decided = True
        self._since = (done, 0.0)
        self._allowance = max(left, 0.0)
        self._announce(
            StepDecision(count=self.schedule.steps, of=self._recipe.steps, minutes=self._minutes),
            (self.schedule.steps - done) * pace,
        )

    def _of(self, steps: int) -> Schedule:
        return self._recipe.lasting(steps) if steps < self._recipe.steps else self._recipe

    def _review(self, done: int, seconds: float) -> None:
        since, total = self._since
        total += seconds
        self._since = (since, total)
        if (done - since) % self._recipe.long_every:
            return
        pace = total / (done - since)
        needed, left = (self.schedule.steps - done) * pace, self._left()
        tolerance = TOLERANCE * self._allowance
        if needed > left + tolerance or (self._may_rise(done) and needed < left - tolerance):
            self._cut(done, pace)

    def _may_rise(self, done: int) -> bool:
        """Whether there is more to do, and the rate is still that of a longer schedule."""
        plateau = (1.0 - self.schedule.decay_share) * self.schedule.steps
        return self.schedule.steps < self._recipe.steps and done < plateau
