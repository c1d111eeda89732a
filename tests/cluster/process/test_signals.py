"""How signals end a service."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from outrider.cluster.process.signals import ending_by_signal, handlers_kept, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_sets_the_event_and_raises_nothing(number: signal.Signals) -> None:
    """Also the second one."""
    before = signal.getsignal(number)
    with ending_by_signal() as ending:
        assert not ending.is_set()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert ending.wait(60)
        assert ending.exit_code == 128 + number

    assert signal.getsignal(number) is before


def test_first_signal_decides_the_exit_code() -> None:
    """A hurried user presses more than one key."""
    with ending_by_signal() as ending:
        assert not ending.wait(0.0)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert ending.wait(60)
        assert ending.exit_code == 130


def test_signal_ends_what_is_waited_for() -> None:
    """Whoever waits without looking is told on another thread; without a signal nobody is."""
    told = threading.Event()
    with ending_by_signal() as ending:
        with ending.calling(told.set):
            pass
        with ending.calling(told.set):
            assert not told.wait(0.3)
            os.kill(os.getpid(), signal.SIGTERM)
            assert told.wait(60)


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
    thread.join(60)

    assert failures == []
