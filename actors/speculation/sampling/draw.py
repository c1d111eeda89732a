"""Drawing tokens from scores and noise: the one rule by which every token of the service is chosen.

Pure. `scores` are transformed log-weights (`transforms.py`), -inf where a token is excluded; `noise` is `gumbel.py`'s.
argmax(scores + noise) is then distributed as softmax(scores) (the Gumbel-max trick), and without noise it is the most
probable token.
"""

from __future__ import annotations

import torch
from torch import Tensor


def draw(scores_NV: Tensor, noise_NV: Tensor | None) -> Tensor:
    """Return the token of each row, the least token id where several are best: int64 (N,).

    A row in which everything is excluded gives token 0.
    """
    perturbed_NV = scores_NV if noise_NV is None else scores_NV + noise_NV
    return perturbed_NV.argmax(dim=1)


def margins(scores_MV: Tensor, noise_MV: Tensor | None) -> Tensor:
    """Return by how much the drawn token of each row beats the second best: float32 (M,).

    A difference in floating-point rounding below half of this cannot change the draw. Infinite if only one token is
    possible, and 0 if none is.
    """
    perturbed_MV = scores_MV if noise_MV is None else scores_MV + noise_MV
    if perturbed_MV.shape[1] == 1:
        return perturbed_MV.new_full(perturbed_MV.shape[:1], torch.inf)
    best_M2 = perturbed_MV.topk(2).values
    gaps_M = best_M2[:, 0] - best_M2[:, 1]
    return gaps_M.masked_fill(best_M2[:, 0] == -torch.inf, 0.0)
