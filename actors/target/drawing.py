"""The target's own draws from the logits of one session's rows.

One row is drawn at a time, as the walk reaches it: of a tree of sixteen nodes a walk visits about three, so on a CPU
drawing all rows would cost more than the walk. Plain decoding and tree decoding come through here alike, which is what
makes their outputs equal.
"""

from __future__ import annotations

import numpy as np
import torch

from outrider.actors.speculation.draw import draw, margins
from outrider.actors.speculation.logprobs import logprobs
from outrider.actors.target.events import Logprob
from outrider.actors.target.session import Session

_INFINITY = float("inf")
_greatest = np.maximum.reduce


class Drawer:
    """Draws tokens at the rows of one session in one pass."""

    def __init__(
        self, session: Session, logits_RV: torch.Tensor, parents_N: list[int], tokens_N: list[int]
    ) -> None:
        """Sets up the draws.

        Args:
            session: The session.
            logits_RV: float32; row 0 belongs to the last committed token, row 1 + n to candidate node n.
            parents_N: Parents of the candidate nodes, -1 for the root.
            tokens_N: Their token ids.
        """
        self._session = session
        self._logits_RV = logits_RV
        self._parents_N = parents_N
        self._tokens_N = tokens_N
        self._path: list[int] = []
        self.logprobs: list[Logprob] = []
        self.near_ties = 0

    def __call__(self, node: int) -> int:
        """Draws the token after a node (-1: the root). Nodes must come in the order of a walk."""
        session = self._session
        row_1V = self._logits_RV[node + 1 : node + 2]
        if node >= 0:
            self._path.append(self._tokens_N[node])
        depth = len(self._path)
        scores_1V = session.transform.apply(row_1V, [self._path], [session.num_output + depth])
        noise_1V = None
        if session.noise is not None:
            position = session.length + depth
            noise_1V = session.noise.row_range(position, position + 1)
        token, margin = draw_one(scores_1V, noise_1V)
        if margin < session.near_tie:
            self.near_ties += 1
        if session.sampling.logprobs is not None:
            self.logprobs.append(logprob_of(row_1V, token, session.sampling.logprobs))
        return token


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
