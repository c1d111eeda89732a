"""SIGINT and SIGTERM: how they end a service, and how its end is kept from being cut in half."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ended(BaseException):
    """A signal came while the service was starting. Not an `Exception`: nothing on the way may take it for one."""


class Ending(threading.Event):
    """Is set by the first signal. Before anyone waits for it, the signal interrupts whatever is being done."""

    def __init__(self) -> None:
        super().__init__()
        self._is_waited_for = False

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, at most so long. From the first call on, signals interrupt nothing."""
        self._is_waited_for = True
        return super().wait(timeout)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        is_first = not self.is_set()
        self.set()
        if is_first and not self._is_waited_for:
            raise Ended


@contextmanager
def ending_by_signal() -> Iterator[Ending]:
    """Inside, signals end the service. Works in the main thread, the only one that may handle signals."""
    ending = Ending()
    earlier = {number: signal.signal(number, ending.note) for number in _SIGNALS}
    try:
        yield ending
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, signals do nothing: half an end would leave processes, and every step of an end is bounded in time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, _ignore)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


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
