"""How far the target will be when candidates arrive, learned from its verdicts alone; no clocks are compared.

A verdict that says *starving* although candidates below its base had been sent shows that they were still on their way: an
exchange takes at least that long. One that does not shows that the first of them had arrived: it takes at most that long.
While candidates travel, the target commits at least a token in each pass, so those that are no deeper than that are certain to
be passed when they come. They are worth sending only as the ancestors of deeper ones.

Pure: times are passed in.
"""

from __future__ import annotations

MEMORY = 0.8
"""Weight of the past in the mean time between verdicts: about five."""

FORGETTING = 0.98
"""Part of the exchange's time that is still believed after another verdict: one that has become faster is found out."""

SLACK_PASSES = 2
"""Passes of an exchange that do not count: what arrives during a pass is known only to the next verdict, and a busy machine can
lose another. Less would keep a near target waiting."""

STEP = 0.7
"""About how often the best child of a node is the draw. Tells what is left of a node's value where candidates first are of use."""


class Staleness:
    """What is known about the exchange of one session."""

    __slots__ = ("_gap_s", "_last_s", "exchange_s")

    def __init__(self) -> None:
        self.exchange_s = 0.0
        """Seconds from sending candidates to a verdict that knows of them, the pass that runs when they come included."""
        self._gap_s = 0.0
        self._last_s: float | None = None

    def observe(self, now: float, *, pass_s: float, starving: bool, sent_s: float | None) -> None:
        """Takes in a verdict.

        Args:
            now: Monotonic time, seconds.
            pass_s: Seconds that the target's pass took.
            starving: The target had nothing below the verdict's base.
            sent_s: When the first candidate below that base was sent; None: none was.
        """
        gap_s = pass_s if self._last_s is None else max(now - self._last_s, pass_s)
        self._gap_s = gap_s if not self._gap_s else MEMORY * self._gap_s + (1.0 - MEMORY) * gap_s
        self._last_s = now
        self.exchange_s *= FORGETTING
        if sent_s is None:
            return
        if starving:
            self.exchange_s = max(self.exchange_s, now - sent_s)
        else:
            self.exchange_s = min(self.exchange_s, now - sent_s)

    @property
    def passed(self) -> int:
        """Tokens that the target is certain to have committed when what is sent now arrives."""
        if self._gap_s <= 0.0:
            return 0
        return max(int(self.exchange_s / self._gap_s) - SLACK_PASSES, 0)

    def discount(self, depth: int) -> float:
        """What is left of a node's value where candidates first are of use: 1 if it is there already."""
        missing = self.passed + 1 - depth
        return STEP**missing if missing > 0 else 1.0
