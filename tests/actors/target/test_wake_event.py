"""What wakes the worker."""

from __future__ import annotations

import threading

from outrider.actors.target.target_worker import WakeEvent

BOUND_S = 60.0
SHORT_S = 0.01


def test_set_before_the_wait_it_is_heard_once() -> None:
    event = WakeEvent()
    event.set()
    event.set()
    assert event.wait(BOUND_S)
    assert not event.wait(SHORT_S)


def test_it_wakes_who_waits() -> None:
    event = WakeEvent()
    setter = threading.Timer(SHORT_S, event.set)
    setter.start()
    assert event.wait(BOUND_S)
    setter.join(BOUND_S)


def test_cleared_it_is_not_heard() -> None:
    event = WakeEvent()
    event.clear()
    event.set()
    event.clear()
    assert not event.wait(SHORT_S)


def test_many_may_set_it_at_once() -> None:
    """However sets and waits interleave, none is lost: each answer is preceded by a set of its own."""
    event, answers = WakeEvent(), threading.Semaphore(0)
    rounds = 200

    def set_often() -> None:
        for _ in range(rounds):
            event.set()
            assert answers.acquire(timeout=BOUND_S)

    setters = [threading.Thread(target=set_often) for _ in range(2)]
    for setter in setters:
        setter.start()
    while any(setter.is_alive() for setter in setters):
        if event.wait(SHORT_S):
            answers.release(2)
    for setter in setters:
        setter.join(BOUND_S)
        assert not setter.is_alive()
