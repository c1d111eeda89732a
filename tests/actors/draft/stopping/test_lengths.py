"""The length policies."""

from __future__ import annotations

import pytest
import torch
from tests.actors.speculation.choice.test_decision import random_decision

from outrider.actors.draft.state.drafter import CannotDraft
from outrider.actors.draft.stopping.lengths import (
    ConfidenceLength,
    DecisionLength,
    Lengths,
)
from outrider.actors.speculation.confidence import row_confidence
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice


def test_confidence_goes_as_deep_as_the_mean_allows() -> None:
    """Half confident: half as deep, whatever the last row says; a frozen tree by its base alone."""
    policy = ConfidenceLength(longest=8, aggressiveness=1.0)
    assert [policy.goes_on(depth=depth, mean=0.5, last=0.0) for depth in (1, 3, 4, 9)] == [
        True,
        True,
        False,
        False,
    ]
    assert [policy.frozen_depth(rating, 4) for rating in (0.0, 0.5, 0.76, 1.0)] == [1, 2, 3, 4]
    assert policy.frozen_depth(0.9, 0) == 0


def test_the_decision_model_goes_on_above_the_threshold() -> None:
    """By the last row; a frozen tree has one level or all."""
    policy = DecisionLength(rater=row_confidence, threshold=0.4)
    assert policy.goes_on(depth=9, mean=0.0, last=0.41)
    assert not policy.goes_on(depth=1, mean=1.0, last=0.4)
    assert [policy.frozen_depth(rating, 3) for rating in (0.3, 0.5)] == [1, 3]
    assert policy.frozen_depth(0.3, 0) == 0


def test_decision_needs_a_model() -> None:
    """Without one it is neither offered nor given; with one its rows are rated by it."""
    bare, full = Lengths(), Lengths(random_decision(1))
    wanted = DraftPolicies(draft_length=LengthChoice.DECISION)
    assert bare.offered == (LengthChoice.FULL, LengthChoice.CONFIDENCE)
    with pytest.raises(CannotDraft, match="outrider train decision"):
        bare.policy(wanted, longest=4)
    assert full.offered == tuple(LengthChoice)
    policy = full.policy(wanted, longest=4)
    other = full.policy(wanted, longest=4)
    assert policy is not None
    assert other is not None
    assert policy.rater is other.rater
    scores_RV = torch.randn(2, 30)
    expected = random_decision(1).rate(scores_RV).tolist()
    assert policy.rater(scores_RV).tolist() == pytest.approx(expected)


def test_full_length_has_no_policy() -> None:
    """So it costs nothing."""
    assert Lengths().policy(DraftPolicies(), longest=4) is None
