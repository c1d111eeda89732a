"""Draws and walks one row and one session at a time: the plain reference of `host_drawing.py` and `device_drawing.py`. Tests and checks on a
device compare with it; nothing serves with it."""

from __future__ import annotations

import torch

from outrider.actors.engine.protocol import Logits
from outrider.actors.exchange.candidates import POOLED
from outrider.actors.speculation.sampling.draw import draw, margins
from outrider.actors.speculation.verify import coupled_draws
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify.drawing import logprob_of
from outrider.actors.target.verify.walks import Walks


class Drawer:
    """Draws tokens at the rows of one session in one pass."""

    def __init__(
        self, session: TargetSession, logits_RV: torch.Tensor, tokens_N: list[int]
    ) -> None:
        """Sets up the draws.

        Args:
            session: The session.
            logits_RV: float32; row 0 belongs to the last committed token, row 1 + n to candidate node n.
            tokens_N: Token ids of the candidate nodes.
        """
        self._session = session
        self._logits_RV = logits_RV
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
        token = int(draw(scores_1V, noise_1V))
        self.near_ties += int(margins(scores_1V, noise_1V) < session.near_tie)
        if session.sampling.logprobs is not None:
            self.logprobs.append(logprob_of(row_1V, token, session.sampling.logprobs))
        return token


def walk_one_at_a_time(pass_: Pass, sessions: dict[int, TargetSession], logits: Logits) -> Walks:
    """Draws and walks every session of a pass that samples by coupled draws, one after the other: the plain reference.

    Args:
        pass_: What was run.
        sessions: By row.
        logits: What came of it.
    """
    walks = Walks.empty(len(pass_.rows_E), 1 + len(pass_.tokens_N))
    roots = pass_.roots_E()
    for entry in pass_.decided_as(POOLED).tolist():
        session = sessions[int(pass_.rows_E[entry])]
        nodes = slice(int(pass_.starts_E[entry]), int(pass_.starts_E[entry + 1]))
        start = int(roots[entry])
        tokens, parents = pass_.tokens_N[nodes].tolist(), pass_.parents_N[nodes].tolist()
        drawer = Drawer(session, logits.values_RV[start:], tokens)
        walk = coupled_draws.walk(tokens, parents, drawer, session.remaining)
        walks.put(entry, walk, drawer.near_ties, drawer.logprobs)
    return walks
