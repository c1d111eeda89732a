"""How sure a draft model is of its next token, and how far it may draft: confidence-modulated length.

Source: Sen, Dasgupta, Waghela 2025, arXiv 2508.15371. With the row's distribution Q over V tokens and its scores z, the
confidence is C = (C_e + C_m + C_s) / 3 of

    C_e = 1 - H(Q) / ln V            entropy, normalised
    C_m = sigmoid(z_1 - z_2)         margin of the scores
    C_s = Q_1 - Q_2                  margin of the probabilities

and the length is max(1, floor(a C' k)), at most k, where C' is the mean confidence, k the greatest length and a the
aggressiveness. The paper gives neither the weights nor the constants, so the three count alike; it calls the normalised
entropy itself a confidence, which would be low where the model is sure, so one minus it is taken. Its drafter makes all
rows of a window at once; here the mean runs over the rows that were run so far, and the length is compared before a
further row is run.

Only the length: the acceptance threshold of the same paper changes the text, and is not here. The length never does
under coupled sampling. Pure.
"""

from __future__ import annotations

import math

import torch


def row_confidence(scores_RV: torch.Tensor) -> torch.Tensor:
    """Confidence of each row, float32 (R,), in [0, 1]; 0 where scores are no numbers.

    Args:
        scores_RV: float32; what the drafter ranks tokens by: logits over temperature, with the noise under coupled
            sampling, so that the margins are those between likely draws. Minus infinity where excluded; at least one
            token is not.
    """
    vocab_size = scores_RV.shape[1]
    if vocab_size < 2:
        return torch.ones_like(scores_RV[:, 0])
    probs_RV = torch.softmax(scores_RV, dim=1)
    entropy_R = torch.special.entr(probs_RV).sum(1)
    scores_R2 = scores_RV.topk(2).values
    probs_R2 = probs_RV.topk(2).values
    by_entropy_R = 1.0 - entropy_R / math.log(vocab_size)
    by_score_R = torch.sigmoid(scores_R2[:, 0] - scores_R2[:, 1])
    by_prob_R = probs_R2[:, 0] - probs_R2[:, 1]
    confidence_R: torch.Tensor = (by_entropy_R + by_score_R + by_prob_R) / 3.0
    return confidence_R.nan_to_num_(0.0)


def confident_length(confidence: float, *, longest: int, aggressiveness: float = 1.0) -> int:
    """How many tokens to draft, 1 to `longest`.

    Args:
        confidence: Mean over the rows seen.
        longest: Greatest length, at least 1.
        aggressiveness: Factor; greater drafts further.
    """
    return min(longest, max(1, math.floor(aggressiveness * confidence * longest)))
