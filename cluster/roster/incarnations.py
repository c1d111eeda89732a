"""Numbers that tell one start of an actor from the next.

They are clock readings, so that they also rise over restarts of the supervisor itself, corrected to rise strictly even
when the clock stands still or is set back while the supervisor runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Incarnations:
    """Hands out strictly rising numbers."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._last = 0

    def next(self) -> int:
        """A number greater than each one before: nanoseconds since 1970, or one more than the last."""
        self._last = max(self._clock_ns(), self._last + 1)
        return self._last
