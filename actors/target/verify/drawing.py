"""The rule of drawing: the perturbed score that is greatest, and its margin. Plain decoding and tree decoding come through the same draws,
which is what makes their outputs equal.

`host_drawing.py` draws a level of all sessions at a time, `device_drawing.py` all rows, `plain_drawing.py` one row, which is the reference of both.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.speculation.sampling.draw import draw, margins
from outrider.actors.speculation.sampling.logprobs import logprobs
from outrider.actors.target.state.target_events import Logprob

_INFINITY = float("inf")
_greatest = np.maximum.reduce


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


def draw_one(scores_1V: torch.Tensor, noise_1V: torch.Tensor | None) -> tuple[int, float]:
    """The draw of one row and its margin: `draw` and `margins` in one, several times faster on a CPU.

    Returns:
        The token id, and by how much it beats the second best (0 if everything is excluded).
    """
    perturbed_1V = scores_1V if noise_1V is None else scores_1V + noise_1V
    if perturbed_1V.device.type != "cpu":
        return int(draw(scores_1V, noise_1V)[0]), float(margins(scores_1V, noise_1V)[0])
    perturbed_V = perturbed_1V.numpy()[0]
    token = int(perturbed_V.argmax())
    best = float(perturbed_V[token])
    if best == -_INFINITY:
        return token, 0.0
    # What `max` calls, without what it does around it.
    before = _greatest(perturbed_V[:token], initial=-_INFINITY)
    after = _greatest(perturbed_V[token + 1 :], initial=-_INFINITY)
    return token, best - float(max(before, after))


def logprob_of(row_1V: torch.Tensor, token: int, num_top: int) -> Logprob:
    """What a request that wants log-probabilities is told about a token drawn at a row."""
    ids_1 = torch.tensor([token], device=row_1V.device)
    report = logprobs(row_1V, ids_1, num_top)
    return Logprob(
        chosen=float(report.chosen_N[0]),
        top_ids=tuple(report.top_ids_NK[0].tolist()),
        top=tuple(report.top_NK[0].tolist()),
    )
