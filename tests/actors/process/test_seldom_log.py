"""Warnings about what peers do again and again."""

from __future__ import annotations

import structlog

from outrider.actors.process.seldom_log import GAP_S, SeldomLog


class Clock:
    """Goes when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_flood_is_one_line_and_later_a_number() -> None:
    """The first is told at once, the rest when time has passed, each peer and kind by itself."""
    clock = Clock()
    with structlog.testing.capture_logs() as lines:
        told = SeldomLog(structlog.get_logger(), clock)
        for number in range(1000):
            told.warning("dropped", drafter="a", reason=f"reason {number}")
        told.warning("dropped", drafter="b", reason="other")
        told.warning("lost", drafter="a", reason="other")
        assert [(line["event"], line["drafter"], line["reason"]) for line in lines] == [
            ("dropped", "a", "reason 0"),
            ("dropped", "b", "other"),
            ("lost", "a", "other"),
        ]
        clock.now_s = GAP_S
        told.warning("dropped", drafter="a", reason="the last")
    assert (lines[3]["reason"], lines[3]["times"]) == ("the last", 1000)


def test_what_was_not_told_is_told_at_the_end() -> None:
    """Once, and a peer that comes again is told of at once."""
    with structlog.testing.capture_logs() as lines:
        told = SeldomLog(structlog.get_logger(), Clock())
        for reason in ("first", "second", "third"):
            told.warning("dropped", drafter="a", reason=reason)
        told.forget("a")
        told.forget("a")
        assert [(line["reason"], line.get("times")) for line in lines] == [
            ("first", None),
            ("third", 2),
        ]
        told.warning("dropped", drafter="a", reason="again")
    assert lines[2]["reason"] == "again"
