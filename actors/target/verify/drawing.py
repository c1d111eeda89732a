"""The rule of drawing: the perturbed score that is greatest, and its margin. Plain decoding and tree decoding come through the same draws,
which is what makes their outputs equal.

`host_drawing.py` draws a level of all sessions at a time, `device_drawing.py` all rows, `plain_drawing.py` one row, which is the reference of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.speculation.sampling.logprobs import logprobs
from outrider.actors.target.state.target_events import Logprob

LOGIT_ERROR = {
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 0.03,
    torch.bfloat16: 0.25,
}
"""Greatest difference between a row's logits in passes of different shapes, by the type of the weights. Of half precision:
measured on the shipped and on random models (docs/exactness.md). Of float32, which logits
have in any case: five times what was measured."""


Float32s = NDArray[np.float32]


class NotNumbers(ArithmeticError):
    """The model gave no scores that a token could be drawn from."""


def check_numbers(best: NDArray[Any]) -> None:
    """Makes sure that draws were made from numbers: of a row with anything else, that is the best score.

    Args:
        best: Of each draw that counts, the score that won.

    Raises:
        NotNumbers: One is NaN or infinite.
    """
    if not np.isfinite(best).all():
        raise NotNumbers("the target model's scores are not numbers (NaN or infinite)")


def draw_rows(perturbed_NV: Float32s) -> tuple[NDArray[np.int64], Float32s, Float32s]:
    """The draw of each row, the least token id where several are best; its margin, infinite if only one token is possible, 0 if
    none is; and its score.

    Args:
        perturbed_NV: Scores with noise. Written into.
    """
    rows = np.arange(len(perturbed_NV))
    tokens_N = perturbed_NV.argmax(axis=1)
    best_N = perturbed_NV[rows, tokens_N]
    perturbed_NV[rows, tokens_N] = -np.inf
    margins_N = np.zeros(len(rows), np.float32)
    np.subtract(best_N, perturbed_NV.max(axis=1), out=margins_N, where=np.isfinite(best_N))
    return tokens_N, margins_N, best_N


def near_tie(dtype: torch.dtype, temperature: float) -> float:
    """Margin between the two best perturbed scores below which a draw is a near tie: the shape of a pass may decide it.

    The same row gives logits that differ in their last bits when it runs alone, beside others, or in a tree: sums are taken in
    another order, and half precision rounds them to few bits.

    Args:
        dtype: Type of weights and cache.
        temperature: Divides the logits, and so their differences; 0 leaves them as they are.
    """
    error = LOGIT_ERROR.get(dtype, LOGIT_ERROR[torch.bfloat16])
    return error / temperature if temperature > 0.0 else error


def logprob_of(row_1V: torch.Tensor, token: int, num_top: int) -> Logprob:
    """What a request that wants log-probabilities is told about a token drawn at a row."""
    ids_1 = row_1V.new_tensor([token], dtype=torch.int64)
    report = logprobs(row_1V, ids_1, num_top)
    return Logprob(
        chosen=float(report.chosen_N[0]),
        top_ids=tuple(report.top_ids_NK[0].tolist()),
        top=tuple(report.top_NK[0].tolist()),
    )
