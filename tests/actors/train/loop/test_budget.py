"""The bound on a call's time: shares, what is left over, what was spent before."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.actors.train.loop.budget import Budget, StepDecision, check_minutes
from outrider.actors.train.training_errors import ResumeError, TrainError

SHARES = {"target": 26.0, "target writes": 10.0, "draft": 11.0, "evaluation": 2.0}
"""Of 49; not those of the recipe, which change with it."""

PARTS = tuple(SHARES)


@dataclass
class Hand:
    """A clock that a test moves; seconds."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_part_gets_its_share_and_what_was_left_over(tmp_path: Path) -> None:
    """49 minutes: the target has 26 and takes 8, so its writing may take 18 + 10."""
    hand = Hand()
    budget = Budget(tmp_path / "b.json", PARTS, 49.0, clock=hand, shares=SHARES)
    budget.begin("target")
    assert budget.left() == pytest.approx(26 * 60)
    hand.now += 8 * 60
    budget.begin("target writes")
    assert budget.left() == pytest.approx(28 * 60)


def test_what_was_overrun_is_shared_by_those_that_remain(tmp_path: Path) -> None:
    """The target takes 37.5 of its 26 minutes: half is left of the others' 23, for each of them alike."""
    hand = Hand()
    budget = Budget(tmp_path / "b.json", PARTS, 49.0, clock=hand, shares=SHARES)
    budget.begin("target")
    hand.now += 37.5 * 60
    budget.begin("target writes")
    assert budget.left() == pytest.approx(5 * 60)
    hand.now += 60
    assert budget.left() == pytest.approx(4 * 60)


def test_time_spent_by_an_interrupted_call_counts(tmp_path: Path) -> None:
    """Only that of this call's parts; measuring is done again and starts at nothing."""
    hand = Hand()
    first = Budget(tmp_path / "b.json", PARTS, 49.0, clock=hand, shares=SHARES)
    first.begin("target")
    hand.now += 10 * 60
    first.decide("target", StepDecision(count=5, of=9, minutes=49.0))
    first.begin("evaluation")
    hand.now += 60
    first.save()
    second = Budget(tmp_path / "b.json", PARTS, 49.0, clock=Hand(7.0), shares=SHARES)
    second.begin("target")
    assert second.spent() == pytest.approx(10 * 60)
    assert second.left() == pytest.approx(16 * 60)
    assert second.decided("target") == StepDecision(count=5, of=9, minutes=49.0)
    other = Budget(tmp_path / "b.json", ("draft", "evaluation"), 49.0, clock=Hand(), shares=SHARES)
    assert other.spent() == 0.0


def test_afresh_forgets_the_parts_of_the_call(tmp_path: Path) -> None:
    """Time and decisions; what was decided for other parts is still true."""
    first = Budget(tmp_path / "b.json", PARTS, 49.0, shares=SHARES)
    first.begin("target")
    for part in ("target", "draft"):
        first.decide(part, StepDecision(count=5, of=9, minutes=49.0))
    second = Budget(tmp_path / "b.json", ("draft", "evaluation"), 49.0, resume=False, shares=SHARES)
    assert second.spent() == 0.0
    assert second.decided("draft") is None
    assert second.decided("target") is not None


def test_no_bound_leaves_no_end(tmp_path: Path) -> None:
    """Zero minutes are no bound."""
    budget = Budget(tmp_path / "b.json", PARTS, 0.0, shares=SHARES)
    budget.begin("target")
    assert budget.left() == math.inf


@pytest.mark.parametrize("minutes", [-1.0, math.inf, math.nan])
def test_other_numbers_are_no_bound(minutes: float) -> None:
    """They are refused with the two possible ways out."""
    with pytest.raises(TrainError, match="give a number above 0, or 0 for no bound"):
        check_minutes(minutes)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """With the way out; starting afresh needs none."""
    path = tmp_path / "b.json"
    path.write_text("[]")
    with pytest.raises(ResumeError, match=r"b\.json: unreadable .* delete it"):
        Budget(path, PARTS, 49.0, shares=SHARES)
    assert Budget(path, PARTS, 49.0, resume=False, shares=SHARES).spent() == 0.0


def test_a_decision_holds_under_its_bound_or_when_done() -> None:
    """Another bound decides again unless nothing is left to do; another recipe always does."""
    decision = StepDecision(count=5, of=9, minutes=3.0)
    assert decision.holds(9, 3.0, 2)
    assert not decision.holds(9, 4.0, 2)
    assert decision.holds(9, 4.0, 5)
    assert not decision.holds(8, 3.0, 5)
