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
from collections.abc import Sequence
from dataclasses import replace

import torch

from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.pool import Node, Selection
from outrider.actors.target.cost import CostModel
from outrider.actors.target.plan import LONGEST_CHAIN_WITH_TREE, Entry
from outrider.actors.target.session import Rooted, Session

NUM_ROOTS = 4
"""Candidates for the next token. With the demonstration pair at temperature 0.8 the first is drawn in half of the cases in
which the last token was seen before, one of four in three quarters."""

KEPT_SCORES = 32
"""Best scores kept of a row: 256 bytes. Fewer: the noise raises tokens that are not among them."""

CAPACITY = 16384
"""Last tokens whose rows are kept, the most recently used ones: 4 MiB."""

PRIOR = (0.35, 0.1, 0.05, 0.03)
"""Expected frequency of each rank before any was seen."""

PRIOR_WEIGHT = 8.0
"""Observations that it counts for."""

FORGET = 0.998
"""Weight of the past after one more observation: the memory is some 500 rounds."""


class RootTable:
    """What the target last thought after each token."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, tuple[torch.Tensor, torch.Tensor]] = OrderedDict()
        self._seen = [0.0] * NUM_ROOTS
        self._drawn = [0.0] * NUM_ROOTS

    def follow(
        self,
        session: Session,
        *,
        last: int,
        nodes: Sequence[int],
        tokens: Sequence[int],
        logits_RV: torch.Tensor,
    ) -> None:
        """Learns from a round, and proposes roots for the next. The tokens are committed already.

        Args:
            session: A session that wants roots of the target.
            last: The last token before the round.
            nodes: The accepted nodes.
            tokens: What the round committed: their tokens first.
            logits_RV: float32; row 0 belongs to `last`, row 1 + n to node n.
        """
        if session.rooted is None:
            return
        for rank, token in enumerate(session.rooted.tokens):
            self._seen[rank] = FORGET * self._seen[rank] + 1.0
            self._drawn[rank] = FORGET * self._drawn[rank] + (token == tokens[0])
        self.remember([last, *tokens[: len(nodes)]], logits_RV[[0, *(node + 1 for node in nodes)]])
        session.rooted = self._propose(session)

    def remember(self, tokens: Sequence[int], logits_RV: torch.Tensor) -> None:
        """Keeps the best scores of the rows of some tokens, in order."""
        count = min(KEPT_SCORES, logits_RV.shape[1])
        best_RK, ids_RK = logits_RV.topk(count, dim=-1)
        for row, token in enumerate(tokens):
            self._rows[token] = best_RK[row], ids_RK[row]
            self._rows.move_to_end(token)
        while len(self._rows) > CAPACITY:
            self._rows.popitem(last=False)

    def _propose(self, session: Session) -> Rooted:
        kept = self._rows.get(session.tokens[-1])
        if kept is None or session.remaining <= 1:
            return Rooted()
        scores_K, ids_K = kept
        if session.noise is not None:
            scores_K = scores_K / session.sampling.temperature
            if session.speculation.verifier is Verifier.COUPLED:
                (noise_V,) = session.noise.row_range(session.length, session.length + 1)
                scores_K = scores_K + noise_V[ids_K]
        count = min(NUM_ROOTS, len(ids_K))
        tokens = tuple(ids_K[scores_K.topk(count).indices].tolist())
        return Rooted(tokens=tokens, values=tuple(map(self._value, range(count))))

    def _value(self, rank: int) -> float:
        drawn = self._drawn[rank] + PRIOR_WEIGHT * PRIOR[rank]
        return drawn / (self._seen[rank] + PRIOR_WEIGHT)


def plant(entries: Sequence[Entry], *, max_nodes: int, cost: CostModel) -> list[Entry]:
    """Adds the target's roots to a pass, as far as each raises the tokens that it is expected to commit in a second.

    Args:
        entries: The pass, with the drafters' candidates.
        max_nodes: Candidates in the pass, at most.
        cost: What passes cost.
    """
    if all(entry.session.rooted is None for entry in entries):
        return list(entries)
    num_nodes = sum(len(entry.selection.nodes) for entry in entries)
    num_rows = sum(len(entry.chain) for entry in entries) + num_nodes
    tokens = len(entries) + sum(sum(entry.selection.values) for entry in entries)
    planted: list[Entry] = []
    for entry in entries:
        session, chosen = entry.session, entry.selection
        is_prompt = entry.is_prefill or len(entry.chain) > LONGEST_CHAIN_WITH_TREE
        if session.rooted is None or session.remaining <= 1 or is_prompt:
            planted.append(entry)
            continue
        known = {t for t, parent in zip(chosen.tokens, chosen.parents, strict=True) if parent < 0}
        room = min(session.speculation.max_nodes - len(chosen.nodes), max_nodes - num_nodes)
        fresh: list[Node] = []
        for token, value in zip(session.rooted.tokens, session.rooted.values, strict=True):
            if token in known:
                continue
            is_gain = (tokens + value) * cost.predict(num_rows) >= tokens * cost.predict(
                num_rows + 1
            )
            if len(fresh) >= room or not is_gain:
                break
            fresh.append(Node(token, session.length + 1, -1, value, value))
            num_rows, tokens = num_rows + 1, tokens + value
        num_nodes += len(fresh)
        planted.append(replace(entry, selection=_with(chosen, fresh)) if fresh else entry)
    return planted


def _with(chosen: Selection, roots: list[Node]) -> Selection:
    return Selection(
        tokens=chosen.tokens + [node.token for node in roots],
        parents=chosen.parents + [-1] * len(roots),
        nodes=chosen.nodes + roots,
        values=chosen.values + [node.value for node in roots],
    )
