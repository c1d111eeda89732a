"""When two tokens are so close that the shape of a pass may decide between them.

The same row gives logits that differ in their last bits when it runs alone, beside others, or in a tree: sums are taken in
another order, and half precision rounds them to few bits. A draw with a smaller margin than that is counted as a near tie.
"""

from __future__ import annotations

import torch

LOGIT_ERROR = {
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 0.03,
    torch.bfloat16: 0.25,
}
"""Greatest difference between a row's logits in passes of different shapes, by the type of the weights. Of half precision:
measured on the shipped and on random models (docs/exactness.md). Of float32, which logits
have in any case: five times what was measured."""


def near_tie(dtype: torch.dtype, temperature: float) -> float:
    """Margin between the two best perturbed scores below which a draw is a near tie.

    Args:
        dtype: Type of weights and cache.
        temperature: Divides the logits, and so their differences; 0 leaves them as they are.
    """
    error = LOGIT_ERROR.get(dtype, LOGIT_ERROR[torch.bfloat16])
    return error / temperature if temperature > 0.0 else error
