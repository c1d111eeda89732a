"""What wakes the worker."""

from __future__ import annotations

import threading

from outrider.actors.target.wake_event import Bell

BOUND_S = 10.0
SHORT_S = 0.01


def test_a_ring_before_the_wait_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(BOUND_S)
    assert not bell.wait(SHORT_S)


def test_a_ring_wakes_who_waits() -> None:
    bell = Bell()
    ringer = threading.Timer(SHORT_S, bell.ring)
    ringer.start()
    assert bell.wait(BOUND_S)
    ringer.join(BOUND_S)


def test_a_silenced_ring_is_not_heard() -> None:
    bell = Bell()
    bell.silence()
    bell.ring()
    bell.silence()
    assert not bell.wait(SHORT_S)


def test_many_may_ring_at_once() -> None:
    """However rings and waits interleave, none is lost: each answer is preceded by a ring of its own."""
    bell, answers = Bell(), threading.Semaphore(0)
    rounds = 200

    def ring() -> None:
        for _ in range(rounds):
            bell.ring()
            assert answers.acquire(timeout=BOUND_S)

    ringers = [threading.Thread(target=ring) for _ in range(2)]
    for ringer in ringers:
        ringer.start()
    while any(ringer.is_alive() for ringer in ringers):
        if bell.wait(SHORT_S):
            answers.release(2)
    for ringer in ringers:
        ringer.join(BOUND_S)
        assert not ringer.is_alive()
