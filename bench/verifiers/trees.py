"""Frozen trees of several kinds and shapes below one context, drawn side by side.

Trees of one context share prefixes, so the models run the union of their nodes once: level by level the draft model, then
everything in one pass of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray

from bench.verifiers.contexts import Context, Models, probs_of
from outrider.actors.engine.protocol import Rows
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import SparseRow, freeze, least_prob, rest_share
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import LevelShape

ROOT = -1


class Kind(StrEnum):
    """How the children of a node are chosen."""

    INDEPENDENT = "independent"
    """Drawn from the draft's row, with replacement."""

    DISTINCT = "distinct"
    """Drawn from the draft's row, without replacement."""

    LIKELY_DRAWS = "likely draws"
    """The best of the draft's scores plus the noise that the target adds."""

    MOST_PROBABLE = "most probable"
    """The draft's most probable tokens."""


LawOf = Callable[[Float64s, LevelShape, int], SparseRow]
"""From a draft row, the tree's shape and the row's depth to the law that children are drawn from."""


def as_sent(probs_V: Float64s, shape: LevelShape, depth: int) -> SparseRow:
    """The law that drafters send."""
    share = rest_share(shape.branching[depth])
    return freeze(probs_V, least_prob(depth), rest_share=share)


def dense(probs_V: Float64s, shape: LevelShape, depth: int) -> SparseRow:
    """The whole row as it is: what no message could carry."""
    ids = np.flatnonzero(probs_V)
    return SparseRow(ids_K=ids.astype(np.uint32), weights_K=probs_V[ids])


@dataclass(slots=True, kw_only=True, eq=False)
class Growing:
    """One tree while it is drawn."""

    kind: Kind
    shape: LevelShape
    law_of: LawOf
    seed: tuple[int, ...]
    """Of the draws. Equal for trees that are to be compared: nearly equal laws then give nearly always equal tokens."""
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Node of the union for each node."""
    laws: list[SparseRow] = field(default_factory=list)
    frontier: list[tuple[int, int]] = field(default_factory=lambda: [(ROOT, ROOT)])
    """Nodes whose children come next, with their nodes of the union."""

    def drawn(self, node: int, count: int, law: SparseRow, vocab_size: int) -> list[int]:
        """The children of a node, by a race: each token has a time of its own, divided by its probability."""
        # Each node its own: two of independent siblings may hold the same token.
        rng = np.random.default_rng([*self.seed, node + 1])
        with np.errstate(divide="ignore"):
            paces_V = 1.0 / law.dense(vocab_size)
        if self.kind is Kind.INDEPENDENT:
            return [
                int((rng.exponential(size=vocab_size) * paces_V).argmin()) for _ in range(count)
            ]
        times_V = rng.exponential(size=vocab_size) * paces_V
        return [int(token) for token in times_V.argsort()[:count] if np.isfinite(times_V[token])]

    def frozen(self) -> FrozenTree:
        """The finished tree."""
        parents_N = tuple(self.parents)
        tree = DraftTree(
            tokens_N=tuple(self.tokens),
            parents_N=parents_N,
            sources_N=sources_by_parent(parents_N),
            replacement=Replacement.WITH if self.kind is Kind.INDEPENDENT else Replacement.WITHOUT,
        )
        return FrozenTree(tree=tree, rows=tuple(self.laws))


class Union:
    """The nodes of all trees below one context, each path once."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def child(self, parent: int, token: int) -> int:
        """The node of a path, made if need be."""
        node = self._children.get((parent, token))
        if node is None:
            node = self._children[parent, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(parent)
        return node


def grow(
    models: Models, context: Context, trees: Sequence[Growing], temperature: float
) -> NDArray[np.float64]:
    """Draws the trees.

    Returns:
        The target's distributions: row 0 after the context, row 1 + n after node n of the union.
    """
    union = Union()
    draft: dict[int, tuple[torch.Tensor, Float64s]] = {}
    scratch: dict[int, int] = {ROOT: ROOT}
    root_logits_1V = context.draft_logits_V[None]
    draft[ROOT] = (root_logits_1V[0], probs_of(root_logits_1V, temperature)[0])
    for level in range(max(tree.shape.depth for tree in trees)):
        growing = [tree for tree in trees if level < tree.shape.depth]
        wanted = sorted({place for tree in growing for _, place in tree.frontier} - draft.keys())
        if wanted:
            rows = Rows(
                slot=context.draft_slot,
                tokens=[union.tokens[node] for node in wanted],
                parents=[scratch[union.parents[node]] for node in wanted],
            )
            logits_NV = models.draft.forward([rows]).of(0)
            for node, row_V, probs_V in zip(
                wanted, logits_NV, probs_of(logits_NV, temperature), strict=True
            ):
                scratch[node] = len(scratch) - 1
                draft[node] = (row_V, probs_V)
        noise_V = context.noise.row_range(len(context.tokens), len(context.tokens) + level + 1)[
            level
        ]
        for tree in growing:
            _draw_level(tree, level, union, draft, noise_V, temperature)
    last = context.tokens[-1]
    rows = Rows(
        slot=context.target_slot,
        tokens=[last, *union.tokens],
        parents=[-1, *(parent + 1 for parent in union.parents)],
    )
    return probs_of(models.target.forward([rows]).of(0), temperature)


def _draw_level(
    tree: Growing,
    level: int,
    union: Union,
    draft: dict[int, tuple[torch.Tensor, Float64s]],
    noise_V: torch.Tensor,
    temperature: float,
) -> None:
    count = tree.shape.branching[level]
    frontier, tree.frontier = tree.frontier, []
    for node, place in frontier:
        logits_V, probs_V = draft[place]
        tokens: Sequence[int]
        match tree.kind:
            case Kind.LIKELY_DRAWS:
                tokens = (logits_V / temperature + noise_V).topk(count).indices.tolist()
            case Kind.MOST_PROBABLE:
                tokens = logits_V.topk(count).indices.tolist()
            case _:
                law = tree.law_of(probs_V, tree.shape, level)
                tokens = tree.drawn(node, count, law, len(probs_V))
                tree.laws.append(law)
        for token in tokens:
            child = union.child(place, token)
            tree.tokens.append(token)
            tree.parents.append(node)
            tree.places.append(child)
            tree.frontier.append((len(tree.tokens) - 1, child))
