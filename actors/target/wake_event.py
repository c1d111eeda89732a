"""What wakes the worker. Ringing it takes a third less than setting a `threading.Event` that is waited for."""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """Rung by any thread, waited for by one. Rings that nobody heard count as one."""

    def __init__(self) -> None:
        # Held while the bell is silent.
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wakes who waits, or who waits next. Any thread."""
        if self._silence.locked():
            # Another thread may have rung since.
            with contextlib.suppress(RuntimeError):
                self._silence.release()

    def silence(self) -> None:
        """Forgets a ring. The one thread that waits."""
        self._silence.acquire(blocking=False)

    def wait(self, timeout_s: float) -> bool:
        """Waits for a ring and forgets it; False if none came in time. The one thread that waits."""
        return self._silence.acquire(timeout=timeout_s)
