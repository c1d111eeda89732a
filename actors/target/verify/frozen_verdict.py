"""The verdict of one round by a verifier that tests a frozen tree, from the logits of the session's rows.

The target's rows are the softmax, in float64, of the very scores that plain decoding draws from; one is made when the
verifier looks at it. At temperature 0 they hold a single one, at the token that plain decoding would choose, so every
verifier gives the text of plain decoding then. Decisions come from the target's own uniforms, which depend on seed and
position only: the same tree at the same base gets the same verdict, and no drafter knows them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from outrider.actors.engine.protocol import Logits
from outrider.actors.exchange.candidates import FROZEN
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import DenseRows
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.uniforms import uniforms
from outrider.actors.speculation.sampling.draw import draw
from outrider.actors.speculation.sampling.random_acts import (
    Float64s,
    UniformDecisions,
    uniforms_needed,
)
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.speculation.verify.acceptance import check_acceptance
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.frozen_store import FrozenStore
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify.drawing import check_numbers, logprob_of
from outrider.actors.target.verify.walks import Read, Walks


class TargetRows:
    """The target's distributions at the rows of one session in one pass, each made once, when it is asked for."""

    def __init__(
        self,
        session: TargetSession,
        logits_RV: torch.Tensor,
        tree: DraftTree,
        *,
        is_every_row_read: bool,
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
            self._rows.update(enumerate(self._softmax(range(tree.num_nodes + 1))))

    def __getitem__(self, row: int, /) -> Float64s:
        """The distribution after node `row - 1`, float64 (V,). Raises NotNumbers if the model's scores give none."""
        made = self._rows.get(row)
        if made is None:
            made = self._rows[row] = self._make(row)
        # One score that is none makes all of them NaN.
        check_numbers(made[:1])
        return made

    def _make(self, row: int) -> Float64s:
        if self._session.noise is not None:
            made_NV = self._softmax(range(row, row + 1))
            made_V: Float64s = made_NV[0]
            return made_V
        scores_1V = self._scores(range(row, row + 1))
        token = int(draw(scores_1V, None))
        check_numbers(scores_1V[:, token].cpu().numpy())
        probs_V = np.zeros(scores_1V.shape[1])
        probs_V[token] = 1.0
        return probs_V

    def _softmax(self, rows: range) -> Float64s:
        made_NV: Float64s = torch.softmax(self._scores(rows).double(), dim=1).cpu().numpy()
        return made_NV

    def _scores(self, rows: range) -> torch.Tensor:
        session = self._session
        paths = [self._tree.path(row - 1) for row in rows]
        num_output = [session.num_output + len(path) for path in paths]
        return session.transform.apply(self._logits_RV[rows.start : rows.stop], paths, num_output)


class FrozenDraws:
    """Tests frozen trees, on the host wherever the model runs."""

    def __init__(self, sessions: Mapping[int, TargetSession], store: FrozenStore) -> None:
        """Takes what is looked up.

        Args:
            sessions: By row.
            store: Has the trees of the running pass.
        """
        self._sessions = sessions
        self._store = store

    def start(self, pass_: Pass, logits: Logits) -> Read:
        """See `Decider`: all is done once it is asked for."""
        return lambda: self._decided(pass_, logits)

    def _decided(self, pass_: Pass, logits: Logits) -> Walks | None:
        entries_B = pass_.decided_as(FROZEN)
        if not len(entries_B):
            return None
        walks = Walks.empty(len(pass_.rows_E), 1 + int(sizes_of(pass_.starts_E).max()))
        roots_E = pass_.roots_E()
        for entry in entries_B.tolist():
            row, start = int(pass_.rows_E[entry]), int(roots_E[entry])
            session, frozen = self._sessions[row], self._store.tested[row].frozen
            logits_RV = logits.values_RV[start : start + 1 + frozen.tree.num_nodes]
            walk = _walk(session, logits_RV, frozen)
            walks.put(entry, walk, 0, _logprobs(session, logits_RV, walk))
        return walks


def _walk(session: TargetSession, logits_RV: torch.Tensor, frozen: FrozenTree) -> Walk:
    """Decides about a tree, once and for all at its base. The path may be as deep as the tree; one token more is committed."""
    tree, speculation = frozen.tree, session.speculation
    method = VERIFIERS[speculation.verifier]
    own = uniforms(session.sampling.seed, session.length, uniforms_needed(tree.num_nodes))
    acceptance = method.verify(
        **speculation.verifier_options,
        tree=tree,
        target_probs_NV=TargetRows(
            session, logits_RV, tree, is_every_row_read=method.needs_all_target_rows
        ),
        draft_probs_RV=DenseRows(frozen.rows, logits_RV.shape[1]),
        decisions=UniformDecisions(own),
    )
    check_acceptance(speculation.verifier, acceptance, tree, logits_RV.shape[1])
    return Walk(path=acceptance.path, tokens=acceptance.tokens)


def _logprobs(session: TargetSession, logits_RV: torch.Tensor, walk: Walk) -> list[Logprob]:
    """Of each token, where they are wanted."""
    num_top = session.sampling.logprobs
    if num_top is None:
        return []
    return [
        logprob_of(logits_RV[node + 1 : node + 2], token, num_top)
        for node, token in zip((-1, *walk.path), walk.tokens, strict=True)
    ]
