"""The clock by which drafters' answers are timed: seconds in which they could work. Pure.

A drafter that shares the target's device is taken to stand still while the target's pass runs, because processes on one GPU run by turns. To tell how long its
answer takes if the target waits for it, this clock leaves out the passes.
"""

from __future__ import annotations


class DraftingClock:
    """The worker's clock, less the target's passes where the device is shared."""

    def __init__(self) -> None:
        self.is_shared = False
        """A drafter that is connected computes on the target's device."""
        self._left_out_s = 0.0
        """Seconds of all passes before the last."""
        self._began_s = self._ended_s = 0.0

    def passed(self, began: float, ended: float) -> None:
        """Takes in a pass, in seconds of the worker's clock."""
        self._left_out_s += self._last_s
        self._began_s, self._ended_s = began, ended if self.is_shared else began

    def at(self, now: float) -> float:
        """This clock's time at a time of the worker's, which is not before the last pass but one ended."""
        inside_s = min(max(now - self._began_s, 0.0), self._last_s)
        return now - self._left_out_s - inside_s

    @property
    def _last_s(self) -> float:
        return self._ended_s - self._began_s
