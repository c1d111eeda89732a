"""Who holds how many slots of a target, and who is told."""

from __future__ import annotations

from outrider.actors.target.service.slot_shares import ASK_AGAIN_S, CONTENDED_S, SharedRoom, Shares


def room(coordinators: int, held: int, contended: bool = False) -> SharedRoom:
    """What is told."""
    return SharedRoom(coordinators=coordinators, held_by_others=held, is_contended=contended)


def test_one_coordinator_alone_is_told_nothing() -> None:
    """It knows what it holds."""
    shares = Shares()
    shares.join(1)
    shares.opened(1, 10)
    assert shares.news(now_s=0.0) == {}


def test_each_hears_what_the_others_hold_once() -> None:
    """And again when it changes, also when the others have gone."""
    shares = Shares()
    for stream in (1, 2, 3):
        shares.join(stream)
    assert shares.news(now_s=0.0) == {stream: room(3, 0) for stream in (1, 2, 3)}
    shares.opened(1, 10)
    shares.opened(1, 11)
    shares.opened(2, 10)
    assert shares.news(now_s=0.0) == {1: room(3, 1), 2: room(3, 2), 3: room(3, 3)}
    assert shares.news(now_s=0.0) == {}
    shares.ended(1, 10)
    assert shares.news(now_s=0.0) == {2: room(3, 1), 3: room(3, 2)}
    shares.leave(1)
    shares.leave(3)
    assert shares.news(now_s=0.0) == {2: room(1, 0)}


def test_a_refusal_is_contention_for_a_while() -> None:
    """Everyone keeps to its share then; when it is over, everyone hears of that."""
    shares = Shares()
    shares.join(1)
    shares.join(2)
    shares.news(now_s=0.0)
    shares.refused(2, now_s=0.0)
    assert shares.news(now_s=0.0) == {1: room(2, 0, True), 2: room(2, 0, True)}
    assert shares.next_change_s(now_s=0.0) in (ASK_AGAIN_S, CONTENDED_S)
    assert shares.news(now_s=CONTENDED_S) == {1: room(2, 0), 2: room(2, 0)}
    assert shares.next_change_s(now_s=CONTENDED_S) is None


def test_one_alone_that_was_refused_is_told_later() -> None:
    """Its former self may have held the slot: that is over when its stream is."""
    shares = Shares()
    shares.join(1)
    shares.refused(1, now_s=0.0)
    assert shares.news(now_s=0.0) == {}
    assert shares.news(now_s=ASK_AGAIN_S) == {1: room(1, 0)}
