"""The verdict of one round by a verifier that tests a frozen tree, from the logits of the session's rows.

The target's rows are the softmax, in float64, of the very scores that plain decoding draws from; one is made when the
verifier looks at it. At temperature 0 they hold a single one, at the token that plain decoding would choose, so every
verifier gives the text of plain decoding then. Decisions come from the target's own uniforms, which depend on seed and
position only: the same tree at the same base gets the same verdict, and no drafter knows them.
"""

from __future__ import annotations

import numpy as np
import torch

from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import DenseRows
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.uniforms import uniforms
from outrider.actors.speculation.sampling.random_acts import (
    Float64s,
    UniformDecisions,
    uniforms_needed,
)
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify.drawing import draw_one, logprob_of


class TargetRows:
    """The target's distributions at the rows of one session in one pass, each made once, when it is asked for."""

    def __init__(
        self,
        session: TargetSession,
        logits_RV: torch.Tensor,
        tree: DraftTree,
        *,
        is_every_row_read: bool = False,
    ) -> None:
        """Takes what rows are made from.

        Args:
            session: The session.
            logits_RV: float32; row 0 belongs to the last committed token, row 1 + n to node n.
            tree: The candidates.
            is_every_row_read: Make all rows at once, which costs little more than making one.
        """
        self._session = session
        self._logits_RV = logits_RV
        self._tree = tree
        self._rows: dict[int, Float64s] = {}
        if is_every_row_read and session.noise is not None:
            every = range(tree.num_nodes + 1)
            self._rows.update(zip(every, self._softmax(every), strict=True))

    def __getitem__(self, row: int, /) -> Float64s:
        """The distribution after node `row - 1`, float64 (V,)."""
        made = self._rows.get(row)
        if made is None:
            made = self._rows[row] = self._make(row)
        return made

    def _make(self, row: int) -> Float64s:
        if self._session.noise is not None:
            made_NV = self._softmax(range(row, row + 1))
            made_V: Float64s = made_NV[0]
            return made_V
        scores_1V = self._scores(range(row, row + 1))
        probs_V = np.zeros(scores_1V.shape[1])
        probs_V[draw_one(scores_1V, None)[0]] = 1.0
        return probs_V

    def _softmax(self, rows: range) -> Float64s:
        made_NV: Float64s = torch.softmax(self._scores(rows).double(), dim=-1).cpu().numpy()
        return made_NV

    def _scores(self, rows: range) -> torch.Tensor:
        session = self._session
        paths = [self._tree.path(row - 1) for row in rows]
        num_output = [session.num_output + len(path) for path in paths]
        return session.transform.apply(self._logits_RV[rows.start : rows.stop], paths, num_output)


class FrozenVerdict:
    """One round over one frozen tree."""

    near_ties = 0
    """Nothing here is decided by which of two perturbed scores is greater."""

    def __init__(self, session: TargetSession, logits_RV: torch.Tensor, frozen: FrozenTree) -> None:
        """Sets up the round.

        Args:
            session: The session, whose text the tree hangs below.
            logits_RV: float32 (1 + nodes, V), as in `TargetRows`.
            frozen: The tree.
        """
        self._session = session
        self._logits_RV = logits_RV
        self._frozen = frozen
        self.logprobs: list[Logprob] = []

    def walk(self) -> Walk:
        """Decides, once and for all at this base. The path may be as deep as the tree; one token more is committed."""
        session, tree = self._session, self._frozen.tree
        if session.trees is not None:
            session.trees.spend(session.length, session.hash)
        speculation = session.speculation
        method = VERIFIERS[speculation.verifier]
        acceptance = method.verify(
            **speculation.verifier_options,
            tree=tree,
            target_probs_NV=TargetRows(
                session,
                self._logits_RV,
                tree,
                is_every_row_read=method.needs_all_target_rows,
            ),
            draft_probs_RV=DenseRows(self._frozen.rows, self._logits_RV.shape[1]),
            decisions=UniformDecisions(
                uniforms(session.sampling.seed, session.length, uniforms_needed(tree.num_nodes))
            ),
        )
        if session.sampling.logprobs is not None:
            for node, token in zip((-1, *acceptance.path), acceptance.tokens, strict=True):
                row_1V = self._logits_RV[node + 1 : node + 2]
                self.logprobs.append(logprob_of(row_1V, token, session.sampling.logprobs))
        return Walk(path=acceptance.path, tokens=acceptance.tokens)
