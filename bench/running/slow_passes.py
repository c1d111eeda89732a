"""Passes of the target that take no less than those of a large model. Only for a process of the benchmark's own.

The shipped target computes for a few milliseconds, and a drafter in a process of its own is late for most of its passes, the more so on
a busy machine: hardly a candidate would be tested. What is computed stays the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.timed_engine import TimedEngine

SLOW_PASSES = "bench.running.slow_passes:slow_passes"
"""The alteration of an `Assembly`."""

LEAST_S = 0.03
"""Seconds of a pass; a model of some billions of parameters takes so long."""


def slow_passes() -> None:
    """Makes every engine of this process so slow. It sleeps, so that drafters have the processor."""
    forward = TimedEngine.forward

    def slowly(self: TimedEngine, batch: Sequence[Rows]) -> Logits:
        began = time.monotonic()
        logits = forward(self, batch)
        time.sleep(max(0.0, LEAST_S - (time.monotonic() - began)))
        return logits

    setattr(TimedEngine, "forward", slowly)  # noqa: B010 - an assignment to a method is no type
