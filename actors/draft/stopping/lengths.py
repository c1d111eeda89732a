"""When to stop drafting further: the length policies of a request, in one form for growing and for frozen trees.

A policy rates each row that the draft model has run, from the scores that it ranks tokens by. Below a candidate drafting
goes on or not by the ratings of the rows on its path, its own not among them: that would have to be run to be known,
which is what the policy is to save.

Frozen trees are settled by the row of their base alone, before anything is drawn. To look at rows behind drawn tokens
would be no error in itself; but a tree whose tokens make it short is sent earlier, and so is rather in time to be
verified than one whose tokens make it long, which changes the law of the text (`docs/drafting.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.state.drafter import CannotDraft
from outrider.actors.speculation.confidence import confident_length, row_confidence
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice
from outrider.actors.speculation.stop_model import DecisionModel

Rater = Callable[[torch.Tensor], torch.Tensor | NDArray[np.float32]]
"""Rates rows by their scores (R, V), one number a row. All sessions that rate alike share one, so that their rows are rated together."""


class LengthPolicy(Protocol):
    """When to stop in one session."""

    @property
    def rater(self) -> Rater:
        """What rates its rows."""
        ...

    def goes_on(self, *, depth: int, mean: float, last: float) -> bool:
        """Whether to run candidates of a row.

        Args:
            depth: Of the candidates: the number of rows on their path.
            mean: Mean rating of those rows.
            last: Rating of the last one, which the candidates were taken from.
        """
        ...

    def frozen_depth(self, rating: float, depth: int) -> int:
        """How many levels a frozen tree gets, at most `depth`; at least 1 if that is."""
        ...


class ConfidenceLength:
    """As far as the mean confidence allows (Sen et al. 2025)."""

    def __init__(self, *, longest: int, aggressiveness: float) -> None:
        """
        Args:
            longest: Greatest length below the text.
            aggressiveness: Factor of the length.
        """
        self._longest = longest
        self._aggressiveness = aggressiveness
        self.rater: Rater = row_confidence

    def goes_on(self, *, depth: int, mean: float, last: float) -> bool:
        """See `LengthPolicy`."""
        return depth < self._length(mean, self._longest)

    def frozen_depth(self, rating: float, depth: int) -> int:
        """See `LengthPolicy`."""
        return self._length(rating, depth) if depth else 0

    def _length(self, confidence: float, longest: int) -> int:
        return confident_length(confidence, longest=longest, aggressiveness=self._aggressiveness)


class DecisionLength:
    """As long as the decision model's score is above a threshold (Lu et al. 2024)."""

    def __init__(self, *, rater: Rater, threshold: float) -> None:
        """
        Args:
            rater: The model.
            threshold: Scores above it go on.
        """
        self._threshold = threshold
        self.rater = rater

    def goes_on(self, *, depth: int, mean: float, last: float) -> bool:
        """See `LengthPolicy`. Each path has its own say: growth ends when none is above the threshold, as in the paper."""
        return last > self._threshold

    def frozen_depth(self, rating: float, depth: int) -> int:
        """See `LengthPolicy`."""
        return depth if rating > self._threshold else min(1, depth)


class Lengths:
    """The length policies that a drafter offers."""

    def __init__(self, decision: DecisionModel | None = None) -> None:
        """
        Args:
            decision: The decision model of its draft model; None: it has none.
        """
        self._rater = decision.rate if decision is not None else None

    @property
    def offered(self) -> tuple[LengthChoice, ...]:
        """Names of the policies."""
        if self._rater is None:
            return (LengthChoice.FULL, LengthChoice.CONFIDENCE)
        return tuple(LengthChoice)

    def policy(self, policies: DraftPolicies, *, longest: int) -> LengthPolicy | None:
        """The policy of a session; None: nothing stops early.

        Args:
            policies: What the request wants.
            longest: Greatest length below the text.

        Raises:
            CannotDraft: The policy needs a decision model, and there is none.
        """
        match policies.draft_length:
            case LengthChoice.FULL:
                return None
            case LengthChoice.CONFIDENCE:
                return ConfidenceLength(longest=longest, aggressiveness=policies.aggressiveness)
            case LengthChoice.DECISION:
                if self._rater is None:
                    raise CannotDraft(
                        "speculation.draft_length is decision, and the draft model has no decision model; "
                        "train one with `outrider train decision`, or choose another length"
                    )
                return DecisionLength(rater=self._rater, threshold=policies.decision_threshold)
