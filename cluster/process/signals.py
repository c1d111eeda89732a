"""SIGINT and SIGTERM: how they end a service, and how its end is kept from being cut in half.

Signals are noted and raise nothing: an exception in the midst of Ray's own calls leaves it in states it does not expect.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_POLL_S = 0.1
"""How soon what a signal is to end is told of it."""


class Ending:
    """Whether a signal has come, and which.

    A pipe, because a handler may interrupt anything: `threading.Event.set` waits for ever if it interrupts `wait`.
    """

    def __init__(self) -> None:
        """Open until `close`."""
        self.number: int | None = None
        """The first signal; None while there is none."""
        self._read_end, self._write_end = os.pipe()

    @property
    def exit_code(self) -> int:
        """What shells and supervisors expect of a process that a signal ended: 130 after SIGINT, 143 after SIGTERM."""
        return 128 + (self.number or signal.SIGTERM)

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Handles a signal."""
        if self.number is None:
            self.number = number
            os.write(self._write_end, b"\0")

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.number is not None

    def wait(self, timeout_s: float) -> bool:
        """Waits for a signal; False if none has come after the time."""
        if not self.is_set():
            select.select([self._read_end], [], [], timeout_s)
        return self.is_set()

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Inside, a signal has `callback` called, on another thread: to end what the caller waits for."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_POLL_S):
                if self.is_set():
                    callback()
                    return

        threading.Thread(target=watch, name="signal-watch", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def close(self) -> None:
        """Frees the pipe. No signal may come to it any more."""
        os.close(self._read_end)
        os.close(self._write_end)


@contextmanager
def ending_by_signal() -> Iterator[Ending]:
    """Inside, signals are noted. Works in the main thread, the only one that may handle signals.

    A second signal hurries nothing: every step of an end is bounded in time, and half an end would leave processes.
    """
    with contextlib.closing(Ending()) as ending, handlers_kept():
        for number in _SIGNALS:
            signal.signal(number, ending.note)
        yield ending


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, signals do nothing."""
    with handlers_kept():
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, _ignore)
        yield


@contextmanager
def held_back() -> Iterator[None]:
    """Inside, signals wait, to be heard at the end; threads that are started inside never hear them.

    Threads that were there before still do. No program may be started inside: it would inherit this.
    """
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Puts back the handlers that whoever is called inside has replaced, as `ray.init` does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler, not SIG_IGN, which child processes would inherit."""
