"""Roots from the target's own rows: where a tree begins before any drafter has answered.

Source: Lu et al. 2024, arXiv 2409.10644, start the next tree with several tokens of the target's last row and keep the one
whose continuation fared best, which biases the text. Here every token is the target's own draw, and once its row is
computed the draw is known: all other candidates of that row are known to be wrong, so there is one root, the committed
token, and nothing to choose. What is not known is the token after it. The target proposes that one itself: its best
candidates there in the row that it last computed after the same token, with the noise of the new position added. (Keeping
the target's rows by their last token is the token recycling of Luo et al. 2024, arXiv 2408.08696.) They cost no draft
pass and no message: they are in the next pass if no drafter has answered by then, and the verdict takes them along, for
drafters to grow below. Roots are proposals like any other: the draw decides, and no text changes.

The rows of all sessions that ask for it are kept together, so sessions learn from each other which tokens follow which;
nothing of that can be seen in a text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from outrider.actors.engine.protocol import Logits
from outrider.actors.speculation import learning
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.candidate_pools import Pools
from outrider.actors.target.state.passes import OWN, Pass, Round
from outrider.actors.target.state.session_table import SessionTable
from outrider.actors.target.state.target_session import TargetSession

NUM_ROOTS = 4
"""Candidates for the next token. With the demonstration pair at temperature 0.8 the first is drawn in half of the cases in
which the last token was seen before, one of four in three quarters."""

KEPT_SCORES = 32
"""Best scores kept of a row: 256 bytes. Fewer: the noise raises tokens that are not among them."""

CAPACITY = 16384
"""Last tokens whose rows are kept, the most recently used ones: 4 MiB."""

PRIOR = (0.35, 0.1, 0.05, 0.03)
"""Expected frequency of each rank before any was seen."""


class RootTable:
    """What the target last thought after each token, and what it proposes now."""

    def __init__(
        self, table: SessionTable, pools: Pools, sessions: Mapping[int, TargetSession]
    ) -> None:
        """Nothing was seen yet.

        Args:
            table: The sessions.
            pools: Their candidates.
            sessions: By row.
        """
        self._table = table
        self._pools = pools
        self._sessions = sessions
        self._rows: OrderedDict[int, tuple[torch.Tensor, torch.Tensor]] = OrderedDict()
        self._seen = [0.0] * NUM_ROOTS
        self._drawn = [0.0] * NUM_ROOTS
        self._proposed: dict[int, list[int]] = {}
        """By row of the table: candidates for the next token, the likeliest first."""

    def told(self, rows_E: Int64s) -> tuple[Int64s, Int64s]:
        """How many roots each session has, and all of them, one session's behind the other's."""
        if not self._proposed:
            return np.zeros(len(rows_E), np.int64), np.zeros(0, np.int64)
        lists = [self._proposed.get(row, []) for row in rows_E.tolist()]
        counts = np.array([len(one) for one in lists], np.int64)
        return counts, np.array([token for one in lists for token in one], np.int64)

    def forget(self, row: int) -> None:
        """A session is over."""
        self._proposed.pop(row, None)

    def follow(
        self,
        pass_: Pass,
        done: Round,
        lasts_E: Int64s,
        nodes_ET: Int64s,
        logits: Logits,
    ) -> None:
        """Learns from a round, and adds roots for the next to the pools. The tokens are committed already.

        Args:
            pass_: What was run.
            done: What was committed.
            lasts_E: The last token of each session before the round.
            nodes_ET: The accepted candidates of each, as places among the entry's.
            logits: Of the pass.
        """
        table, roots = self._table, pass_.roots_E()
        for index in table.rooted_S[done.rows_E].nonzero()[0].tolist():
            row, start = int(done.rows_E[index]), int(roots[done.entries_E[index]])
            tokens = done.tokens_ET[index, : done.counts_E[index]].tolist()
            nodes = [node for node in nodes_ET[index].tolist() if node >= 0]
            for rank, token in enumerate(self._proposed.pop(row, [])):
                self._seen[rank] = learning.DRAWS * self._seen[rank] + 1.0
                self._drawn[rank] = learning.DRAWS * self._drawn[rank] + (token == tokens[0])
            rows = [start, *(start + 1 + node for node in nodes)]
            self.remember([int(lasts_E[index]), *tokens[: len(nodes)]], logits.values_RV[rows])
            if not done.over_E[index]:
                self._propose(row, tokens[-1])

    def remember(self, tokens: Sequence[int], logits_RV: torch.Tensor) -> None:
        """Keeps the best scores of the rows of some tokens, in order."""
        count = min(KEPT_SCORES, logits_RV.shape[1])
        best_RK, ids_RK = logits_RV.topk(count, dim=-1)
        for row, token in enumerate(tokens):
            self._rows[token] = best_RK[row], ids_RK[row]
            self._rows.move_to_end(token)
        while len(self._rows) > CAPACITY:
            self._rows.popitem(last=False)

    def _propose(self, row: int, last: int) -> None:
        tokens = self._best(self._sessions[row], last)
        if not tokens or self._table.remaining_S[row] <= 1:
            return
        self._proposed[row] = tokens
        count = len(tokens)
        self._pools.add_children(
            np.full(count, row),
            np.full(count, self._table.lengths_S[row]),
            np.full(count, self._table.keys_of(np.array([row]))[0]),
            np.array(tokens),
            np.array([self._value(rank) for rank in range(count)]),
            drafter=OWN,
        )

    def _best(self, session: TargetSession, last: int) -> list[int]:
        kept = self._rows.get(last)
        if kept is None:
            return []
        scores_K, ids_K = kept
        if session.noise is not None:
            scores_K = scores_K * session.sampling.inverse_temperature
            if VERIFIERS[session.speculation.verifier].shares_noise:
                (noise_V,) = session.noise.row_range(session.length, session.length + 1)
                scores_K = scores_K + noise_V[ids_K]
        count = min(NUM_ROOTS, len(ids_K))
        best: list[int] = ids_K[scores_K.topk(count).indices].tolist()
        return best

    def _value(self, rank: int) -> float:
        drawn = self._drawn[rank] + learning.PRIOR_DRAWS * PRIOR[rank]
        return drawn / (self._seen[rank] + learning.PRIOR_DRAWS)
