"""How signals end a service."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from outrider.cluster.signals import ending_by_signal, handlers_kept, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_sets_the_event_and_raises_nothing(number: signal.Signals) -> None:
    """Also the second one."""
    before = signal.getsignal(number)
    with ending_by_signal() as ending:
        assert not ending.is_set()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert ending.wait(5)

    assert signal.getsignal(number) is before


def test_end_is_not_interrupted() -> None:
    """Ctrl-C in the midst of it does nothing."""
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)


def test_replaced_handlers_come_back() -> None:
    """As after `ray.init`, which sets its own."""
    before = signal.getsignal(signal.SIGTERM)
    with handlers_kept():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_signals_alone() -> None:
    """Python allows handlers in the main thread only."""
    failures: list[ValueError] = []

    def run() -> None:
        try:
            with uninterrupted(), handlers_kept():
                pass
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(5)

    assert failures == []
