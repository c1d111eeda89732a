"""The frozen trees of one session at the drafter: the one below the committed text, and those below predicted texts.

A round is one tree. It grows level by level in a shape that is fixed before anything is drawn, and is *frozen* once its
last level is drawn: nothing is added, moved or removed from then on, whatever happens to the message that carries it.
While the target verifies it, the next round grows below the outcome that is thought most likely: the best leaf is
accepted, and the token after it is the drafter's own favourite. If the verdict is that outcome, the next tree is at the
target already.

Pure. All nodes of all rounds are in one set of parallel lists, in topological order; a node is *run* when its row is in
the engine's scratch space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import SparseRow
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import LevelShape

ROOT = -1
"""Stands for the root where a node or its scratch row is asked for."""

NOT_RUN = -1
"""Scratch row of a node that the engine has not run."""


@dataclass(slots=True, kw_only=True, eq=False)
class FrozenRound:
    """One tree."""

    number: int
    anchor: int
    """Node that it hangs below: the last token of its base, or `ROOT`."""
    length: int
    """Length of the base."""
    hash: int
    """Hash of the base."""
    shape: LevelShape
    frontier: list[int]
    """Nodes whose children are drawn next, the anchor first of all; empty once the tree is frozen."""
    nodes: list[int] = field(default_factory=list)
    """The tree, in draw order."""
    laws: list[SparseRow] = field(default_factory=list)
    """What the children of each internal node were drawn from, in the order in which nodes are expanded."""
    values: list[float] = field(default_factory=list)
    """Probability of the path to each node under the drafter."""
    num_levels: int = 0
    is_sent: bool = False

    @property
    def is_frozen(self) -> bool:
        """True once every level is drawn."""
        return self.num_levels == self.shape.depth

    @property
    def planned_frontier(self) -> int:
        """Nodes of the frontier by the shape; there are fewer where a row had not as many tokens."""
        return self.shape.level_sizes[self.num_levels - 1] if self.num_levels else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What becomes of the scratch rows after a verdict."""

    path: list[int]
    """Rows of committed tokens, from the root down."""

    keep: list[int]
    """Rows that stay scratch, ascending; they are renumbered 0, 1, ... in this order."""


class FrozenRounds:
    """Rounds of one session, the committed one first."""

    def __init__(self, replacement: Replacement) -> None:
        self._replacement = replacement
        self._num_begun = 0
        self.clear()

    def clear(self) -> None:
        """Forgets everything; numbers go on."""
        self.rounds: list[FrozenRound] = []
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.scratch: list[int] = []

    @property
    def num_run(self) -> int:
        """Number of rows in the engine's scratch space."""
        return sum(row != NOT_RUN for row in self.scratch)

    def path(self, node: int) -> list[int]:
        """Tokens from the root to a node."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]

    def begin(self, *, length: int, hash_: int, shape: LevelShape) -> FrozenRound:
        """Begins the round below the committed text."""
        return self._begin(anchor=ROOT, length=length, hash_=hash_, shape=shape)

    def predict(self, leaf: int, token: int, shape: LevelShape) -> FrozenRound:
        """Begins a round below the outcome of the last one: the leaf is accepted, then the token comes."""
        last = self.rounds[-1]
        tokens = self.path(leaf)[len(self.path(last.anchor)) :]
        anchor = self._add(leaf, token)
        return self._begin(
            anchor=anchor,
            length=last.length + len(tokens) + 1,
            hash_=base_hash.extend_all(last.hash, (*tokens, token)),
            shape=shape,
        )

    def grow(
        self, round_: FrozenRound, laws: Sequence[SparseRow], drawn: Sequence[Sequence[int]]
    ) -> None:
        """Adds the next level.

        Args:
            round_: The round, not frozen.
            laws: What children were drawn from, for each node of the frontier.
            drawn: The children, in draw order.
        """
        frontier, round_.frontier = round_.frontier, []
        value_of = dict(zip(round_.nodes, round_.values, strict=True))
        for parent, law, tokens in zip(frontier, laws, drawn, strict=True):
            round_.laws.append(law)
            for token in tokens:
                node = self._add(parent, token)
                round_.nodes.append(node)
                round_.values.append(value_of.get(parent, 1.0) * law.prob(token))
                round_.frontier.append(node)
        round_.num_levels += 1
        if round_.is_frozen:
            round_.frontier = []

    def best_leaf(self) -> int:
        """The node of the last round's deepest level that the drafter thinks most probable."""
        last = self.rounds[-1]
        depth = len(self.path(last.anchor)) + last.shape.depth
        leaves = [
            (value, -node)
            for node, value in zip(last.nodes, last.values, strict=True)
            if len(self.path(node)) == depth
        ]
        return -max(leaves)[1]

    def take_unsent(self, handle: int) -> list[FrozenCandidates]:
        """Frozen trees that were not sent, for the session that the target names so; marks them sent."""
        fresh = [one for one in self.rounds if one.is_frozen and not one.is_sent]
        for one in fresh:
            one.is_sent = True
        return [
            FrozenCandidates(
                handle=handle,
                base_length=one.length,
                base_hash=one.hash,
                round=one.number,
                frozen=self._freeze(one),
            )
            for one in fresh
        ]

    def unsend(self) -> None:
        """Takes every tree as not sent."""
        for one in self.rounds:
            one.is_sent = False

    def num_foreseen(self, tokens: Sequence[int]) -> int:
        """How many of these tokens are on a path through the nodes."""
        node, count = ROOT, 0
        for token in tokens:
            children = [n for n in self._children(node) if self.tokens[n] == token]
            if not children:
                break
            node, count = children[0], count + 1
        return count

    def follow(self, tokens: Sequence[int]) -> Followed:
        """Goes along with committed tokens: keeps the round that was drafted for them, if there is one."""
        for index, one in enumerate(self.rounds):
            is_run = one.anchor != ROOT and self.scratch[one.anchor] != NOT_RUN
            if is_run and self.path(one.anchor) == list(tokens):
                return self._reroot(index)
        # The last token's row is needed for its logits, so it is run again, or for the first time.
        rows: list[int] = []
        node = ROOT
        for token in tokens[:-1]:
            run = [
                child
                for child in self._children(node)
                if self.tokens[child] == token and self.scratch[child] != NOT_RUN
            ]
            if not run:
                break
            node = run[0]
            rows.append(self.scratch[node])
        self.clear()
        return Followed(path=rows, keep=[])

    def _reroot(self, index: int) -> Followed:
        anchor = self.rounds[index].anchor
        path: list[int] = []
        node = anchor
        while node != ROOT:
            path.append(self.scratch[node])
            node = self.parents[node]
        renamed = {anchor: ROOT}
        tokens: list[int] = []
        parents: list[int] = []
        rows: list[int] = []
        for old in range(anchor + 1, len(self.tokens)):
            parent = renamed.get(self.parents[old])
            if parent is not None:
                renamed[old] = len(tokens)
                tokens.append(self.tokens[old])
                parents.append(parent)
                rows.append(self.scratch[old])
        keep = sorted(row for row in rows if row != NOT_RUN)
        place = {NOT_RUN: NOT_RUN, **{row: new for new, row in enumerate(keep)}}
        self.tokens, self.parents, self.scratch = tokens, parents, [place[row] for row in rows]
        self.rounds = self.rounds[index:]
        for one in self.rounds:
            one.anchor = renamed[one.anchor]
            one.nodes = [renamed[node] for node in one.nodes]
            one.frontier = [renamed[node] for node in one.frontier]
        return Followed(path=path[::-1], keep=keep)

    def _begin(self, *, anchor: int, length: int, hash_: int, shape: LevelShape) -> FrozenRound:
        self._num_begun += 1
        begun = FrozenRound(
            number=self._num_begun,
            anchor=anchor,
            length=length,
            hash=hash_,
            shape=shape,
            frontier=[anchor],
        )
        self.rounds.append(begun)
        return begun

    def _add(self, parent: int, token: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.scratch.append(NOT_RUN)
        return len(self.tokens) - 1

    def _children(self, node: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def _freeze(self, round_: FrozenRound) -> FrozenTree:
        place = {round_.anchor: -1, **{node: index for index, node in enumerate(round_.nodes)}}
        parents_N = tuple(place[self.parents[node]] for node in round_.nodes)
        tree = DraftTree(
            tokens_N=tuple(self.tokens[node] for node in round_.nodes),
            parents_N=parents_N,
            sources_N=sources_by_parent(parents_N),
            replacement=self._replacement,
        )
        return FrozenTree(tree=tree, rows=tuple(round_.laws))


def most_probable(probs_V: Float64s, count: int) -> tuple[int, ...]:
    """The most probable tokens of a row, most probable first; of equal ones the lowest id first."""
    least = np.partition(probs_V, -count)[-count] if count < len(probs_V) else -np.inf
    ids = np.flatnonzero(probs_V >= least)
    order = np.argsort(-probs_V[ids], kind="stable")[:count]
    return tuple(ids[order].tolist())
