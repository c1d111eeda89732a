"""Hidden states of the demonstration target at every position of a text, for drafters that are led along it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.exchange.features import narrowed, widened
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.train.features.frozen_target import load_target


class TargetStates:
    """Of one target."""

    def __init__(self, target: str) -> None:
        """Loads it, float32, on the CPU."""
        self._target = load_target(target, torch.device("cpu"))

    def of(self, tokens: Sequence[int], request: FeedbackRequest) -> NDArray[np.float32]:
        """States [T, L, D] of the layers of a request, as they come off the wire."""
        rows = self._target.features(np.array([tokens], np.int32), request.layers)
        states_TLD = rows[0].numpy().reshape(len(tokens), len(request.layers), -1)
        return widened(narrowed(states_TLD))
