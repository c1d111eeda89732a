"""The rule of drawing: the perturbed score that is greatest, and its margin. Plain decoding and tree decoding come through the same draws,
which is what makes their outputs equal.

`host_drawing.py` draws a level of all sessions at a time, `device_drawing.py` all rows, `plain_drawing.py` one row, which is the reference of both.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.speculation.sampling.logprobs import logprobs
from outrider.actors.target.state.target_events import Logprob


def draw_rows(perturbed_NV: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The draw of each row, the least token id where several are best, and its margin: infinite if only one token is possible, 0 if
    none is.

    Args:
        perturbed_NV: Scores with noise. Written into.
    """
    rows = np.arange(len(perturbed_NV))
    tokens_N = perturbed_NV.argmax(axis=1)
    best_N = perturbed_NV[rows, tokens_N]
    perturbed_NV[rows, tokens_N] = -np.inf
    with np.errstate(invalid="ignore"):
        margins_N = best_N - perturbed_NV.max(axis=1)
    margins_N[best_N == -np.inf] = 0.0
    return tokens_N, margins_N


def logprob_of(row_1V: torch.Tensor, token: int, num_top: int) -> Logprob:
    """What a request that wants log-probabilities is told about a token drawn at a row."""
    ids_1 = row_1V.new_tensor([token], dtype=torch.int64)
    report = logprobs(row_1V, ids_1, num_top)
    return Logprob(
        chosen=float(report.chosen_N[0]),
        top_ids=tuple(report.top_ids_NK[0].tolist()),
        top=tuple(report.top_NK[0].tolist()),
    )
