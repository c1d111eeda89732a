"""A small trained model that says whether it is worth drafting on below a candidate.

Source: Lu et al. 2024, arXiv 2409.10644, "decision model", the second of its two types: the ten greatest probabilities of
the row that the candidate was taken from and the row's entropy (11 numbers), one hidden layer of 44 units, a sigmoid.
The answer is compared with a threshold, 0.4 there, and drafting goes on as long as any live path is above it. Trained on
whether candidates were accepted, both outcomes weighted alike (`actors/train/stop_model/train_stop_model.py`), so it is a score, not a
frequency.

The model decides when to stop and nothing else: what was drafted stays. The authors' service loses exactness elsewhere
(the roots of its trees are chosen by what becomes of them, and siblings are tested independently); under coupled sampling
stopping is as harmless as any other growth of a tree, and for frozen trees only if it is decided before a token is drawn
(`docs/drafting.md`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

NUM_PROBS = 10
"""Greatest probabilities of a row that the model looks at."""

NUM_FEATURES = NUM_PROBS + 1
"""Those, and the entropy."""

NUM_HIDDEN = 44
"""Units of the hidden layer."""

Float32s = NDArray[np.float32]


def row_features(scores_RV: torch.Tensor) -> Float32s:
    """What the model sees of rows: the greatest probabilities, descending, then the entropy in nats. Shape (R, 11).

    Args:
        scores_RV: float32; what the drafter ranks tokens by. Minus infinity where excluded.
    """
    probs_RV = torch.softmax(scores_RV, dim=1)
    count = min(NUM_PROBS, probs_RV.shape[1])
    features_RF = np.zeros((len(probs_RV), NUM_FEATURES), dtype=np.float32)
    features_RF[:, :count] = probs_RV.topk(count).values.cpu().numpy()
    features_RF[:, NUM_PROBS] = torch.special.entr(probs_RV).sum(1).cpu().numpy()
    return features_RF


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecisionModel:
    """The weights."""

    hidden_FH: Float32s
    """From the features to the hidden units, shape (11, 44)."""

    hidden_bias_H: Float32s
    output_H: Float32s
    output_bias: float

    def __post_init__(self) -> None:
        """Checks the shapes.

        Raises:
            ValueError: A shape is wrong, or a weight is not finite.
        """
        wanted = {
            "hidden_FH": (NUM_FEATURES, NUM_HIDDEN),
            "hidden_bias_H": (NUM_HIDDEN,),
            "output_H": (NUM_HIDDEN,),
        }
        for name, shape in wanted.items():
            weights = getattr(self, name)
            if weights.shape != shape:
                raise ValueError(f"{name} has shape {weights.shape}; it must have {shape}")
            if not np.isfinite(weights).all():
                raise ValueError(f"{name} holds a weight that is not finite")
        if not np.isfinite(self.output_bias):
            raise ValueError(f"output_bias is {self.output_bias}; it must be finite")

    def scores(self, features_RF: Float32s) -> Float32s:
        """Score of each row, in [0, 1]: greater for rows whose candidate is more often accepted. Shape (R,)."""
        hidden_RH = np.maximum(features_RF @ self.hidden_FH + self.hidden_bias_H, 0.0)
        logits_R = hidden_RH @ self.output_H + np.float32(self.output_bias)
        # The logistic function, which overflows nowhere if it is written so.
        scores_R: Float32s = 0.5 + 0.5 * np.tanh(0.5 * logits_R)
        return scores_R

    def rate(self, scores_RV: torch.Tensor) -> Float32s:
        """Score of each row, from what the drafter ranks tokens by. Shape (R,)."""
        return self.scores(row_features(scores_RV))
