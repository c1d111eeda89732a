"""Frozen trees of one session that wait to be verified: for the committed text, or for a text that is expected.

At most one tree of a drafter is taken for a base, and each base is verified in at most one round, because every round makes the text longer. So repeated,
late and second trees are dropped. Which tree is verified depends on the order of arrival, never on the tokens of a tree. A tree that is too large loses
whole levels. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.speculation import learning
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS, check_tree
from outrider.actors.speculation.trees.draft_tree import DraftTree

MAX_HELD = 4
"""Trees of one drafter in one session. A drafter is rarely more than two predictions ahead; the oldest go first."""

TRY_AGAIN = 32
"""Passes without a tree after which one is verified although it seems not worth it, because acceptance changes with the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiableTree:
    """A tree that can be verified now."""

    base: tuple[int, int]
    """Length and hash of the text that it hangs below."""

    frozen: FrozenTree
    """The tree; if the verifier allows it, that of several drafters side by side."""

    drafters_N: tuple[int, ...]
    """Who drew each node, by number."""

    expected_nodes: int
    """Mean size of earlier trees. It decides whether a tree is worth its rows. The tree's own size must not: it depends on tokens where a row has
    fewer than there should be siblings, and no tree may be left out because of its tokens."""

    def nodes(self) -> Iterator[tuple[int, int, int, int]]:
        """Token, parent, depth in the text and drafter of each node."""
        tree, length = self.frozen.tree, self.base[0]
        depths = [length + depth for depth in depths_of(tree)]
        return zip(tree.tokens_N, tree.parents_N, depths, self.drafters_N, strict=True)


class FrozenPool:
    """Trees by the base that they hang below."""

    def __init__(self, verifier: str) -> None:
        self._verifier = verifier
        self._mixes = VERIFIERS[verifier].mixes_drafters
        self._trees: dict[tuple[int, int], dict[int, FrozenCandidates]] = {}
        self._num_skipped = 0
        self._mean_nodes = 0.0

    @property
    def num_trees(self) -> int:
        """Number of trees held."""
        return sum(map(len, self._trees.values()))

    def take(self, drafter: int, found: FrozenCandidates) -> bool:
        """Keeps a tree.

        Args:
            drafter: Who drew it, by number.
            found: The tree; its base is not shorter than the text.

        Returns:
            False if the drafter's tree for this base is held already.

        Raises:
            ValueError: The session's verifier cannot take the tree; the message says why.
        """
        tree, allowed = found.frozen.tree, VERIFIERS[self._verifier].replacements
        check_tree(self._verifier, tree)
        if tree.replacement not in allowed:
            raise ValueError(
                f"{self._verifier} needs siblings drawn {' or '.join(sorted(allowed))} replacement; the tree "
                f"says {tree.replacement}"
            )
        at_base = self._trees.setdefault((found.base_length, found.base_hash), {})
        if drafter in at_base:
            return False
        at_base[drafter] = found
        self._bound(drafter)
        return True

    def spend(self, length: int, hash_: int) -> None:
        """Drops the trees of a base whose round is decided. No other tree is verified there."""
        self._forget((length, hash_))

    def advance(self, length: int) -> int:
        """Drops the trees that the text has passed by.

        Returns:
            The number of nodes in them.
        """
        passed = [base for base in self._trees if base[0] < length]
        return sum(map(self._forget, passed))

    def passed(self, length: int) -> Iterator[tuple[tuple[int, int], int, FrozenTree]]:
        """Base, drafter and tree of all that a text of this length has passed by."""
        for base, trees in self._trees.items():
            if base[0] < length:
                yield from ((base, drafter, held.frozen) for drafter, held in trees.items())

    def has(self, length: int, hash_: int) -> bool:
        """True if there is a tree for this text."""
        return (length, hash_) in self._trees

    def is_complete(self, length: int, hash_: int, drafters: frozenset[int]) -> bool:
        """True if no further tree for this text can go along: each of these drafters has sent one, or one is all it takes."""
        return not self._mixes or drafters <= self._trees.get((length, hash_), {}).keys()

    def ready(
        self, length: int, hash_: int, *, max_nodes: int, max_depth: int
    ) -> VerifiableTree | None:
        """The tree for this text, None if there is none or no room for its first level."""
        at_base = self._trees.get((length, hash_))
        if at_base is None:
            return None
        parts: list[FrozenTree] = []
        drafters: tuple[int, ...] = ()
        for drafter, held in at_base.items():
            room = max_nodes - len(drafters)
            frozen = first_levels(held.frozen, max_nodes=room, max_depth=max_depth)
            size = frozen.tree.num_nodes
            if size:
                parts.append(frozen)
                drafters += (drafter,) * size
            if not self._mixes:
                break
        if not parts:
            return None
        return VerifiableTree(
            base=(length, hash_),
            frozen=side_by_side(parts),
            drafters_N=drafters,
            expected_nodes=round(self._mean_nodes * len(parts)),
        )

    def is_worth(self, *, is_gain: bool) -> bool:
        """Whether to verify a tree: if it is a gain, and once in `TRY_AGAIN` passes in any case."""
        if is_gain or self._num_skipped >= TRY_AGAIN:
            self._num_skipped = 0
            return True
        self._num_skipped += 1
        return False

    def _forget(self, base: tuple[int, int]) -> int:
        """Drops the trees of a base and remembers how large they were.

        Returns:
            The number of nodes in them.
        """
        sizes = [held.num_nodes for held in self._trees.pop(base, {}).values()]
        for size in sizes:
            share = 1.0 - learning.ROUNDS if self._mean_nodes else 1.0
            self._mean_nodes += share * (size - self._mean_nodes)
        return sum(sizes)

    def _bound(self, drafter: int) -> None:
        own = [(trees[drafter].round, b) for b, trees in self._trees.items() if drafter in trees]
        for _, base in sorted(own)[: max(len(own) - MAX_HELD, 0)]:
            del self._trees[base][drafter]
            if not self._trees[base]:
                del self._trees[base]


def first_levels(frozen: FrozenTree, *, max_nodes: int, max_depth: int) -> FrozenTree:
    """The first levels of a tree, as many as fit whole."""
    tree, depths = frozen.tree, depths_of(frozen.tree)
    deepest, num_nodes = 0, 0
    while deepest < max_depth:
        size = depths.count(deepest + 1)
        if not size or num_nodes + size > max_nodes:
            break
        deepest, num_nodes = deepest + 1, num_nodes + size
    if num_nodes == tree.num_nodes:
        return frozen
    kept = [node for node, depth in enumerate(depths) if depth <= deepest]
    place = {-1: -1, **{node: index for index, node in enumerate(kept)}}
    return FrozenTree(
        tree=DraftTree(
            tokens_N=tuple(tree.tokens_N[node] for node in kept),
            parents_N=tuple(place[tree.parents_N[node]] for node in kept),
            sources_N=tuple(tree.sources_N[node] for node in kept),
            replacement=tree.replacement,
        ),
        rows=frozen.rows,
    )


def depths_of(tree: DraftTree) -> list[int]:
    """The level of each node, 1 below the root."""
    depths: list[int] = []
    for parent in tree.parents_N:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


def side_by_side(parts: Sequence[FrozenTree]) -> FrozenTree:
    """One tree of several for the same base, each with its own rows; equal tokens stay separate nodes."""
    tokens: list[int] = []
    parents: list[int] = []
    sources: list[int] = []
    num_rows = 0
    for part in parts:
        start = len(tokens)
        tokens.extend(part.tree.tokens_N)
        parents.extend(p if p < 0 else p + start for p in part.tree.parents_N)
        sources.extend(source + num_rows for source in part.tree.sources_N)
        num_rows += len(part.rows)
    tree = DraftTree(
        tokens_N=tuple(tokens),
        parents_N=tuple(parents),
        sources_N=tuple(sources),
        replacement=parts[0].tree.replacement,
    )
    return FrozenTree(tree=tree, rows=tuple(row for part in parts for row in part.rows))
