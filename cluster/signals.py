"""SIGINT and SIGTERM: how they end a service, and how its end is kept from being cut in half.

Signals set an event and raise nothing: an exception in the midst of Ray's own calls leaves it in states it does not expect.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ending_by_signal() -> Iterator[threading.Event]:
    """Inside, signals set the event. Works in the main thread, the only one that may handle signals.

    A second signal hurries nothing: every step of an end is bounded in time, and half an end would leave processes.
    """
    ending = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        ending.set()

    with handlers_kept():
        for number in _SIGNALS:
            signal.signal(number, note)
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
