"""Frozen trees on their way from a drafter to a target: the same for both ends, and their message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.candidates import FROZEN, MAX_TREE
from outrider.actors.frozen import law_frame
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.v1 import target_pb2, tree_pb2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrozenCandidates:
    """A frozen tree for one session."""

    handle: int
    """The target's handle of the session."""

    base_length: int
    """Length of the text that it hangs below. May be more than is committed: then the base is a prediction."""

    base_hash: int
    """Rolling hash of that text."""

    round: int
    """The drafter's number of the tree."""

    frozen: FrozenTree

    @property
    def num_nodes(self) -> int:
        """Nodes of the tree."""
        return self.frozen.tree.num_nodes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrozenBatch:
    """Frozen trees that came together, of each session one at most. Read as `exchange.candidates.Candidates` are: a tree is an entry."""

    trees_E: tuple[FrozenCandidates, ...]

    bytes_E: npt.NDArray[np.int64]
    """Each tree's share of the message that it was read from."""

    kind: ClassVar[int] = FROZEN
    may_be_ahead: ClassVar[bool] = True
    held_s: ClassVar[float] = 0.0
    sent_us: ClassVar[int] = 0
    """They go out as soon as they are complete."""

    @property
    def num_nodes(self) -> int:
        """Nodes of all trees."""
        return sum(tree.num_nodes for tree in self.trees_E)

    @property
    def num_bytes(self) -> int:
        """Of all shares."""
        return int(self.bytes_E.sum())

    @property
    def handles_E(self) -> npt.NDArray[np.uint64]:
        """See `Candidates`; so are the others."""
        return np.array([tree.handle for tree in self.trees_E], np.uint64)

    @property
    def lengths_E(self) -> npt.NDArray[np.int64]:
        """Length of each base."""
        return np.array([tree.base_length for tree in self.trees_E], np.int64)

    @property
    def hashes_E(self) -> npt.NDArray[np.uint64]:
        """Hash of each base."""
        return np.array([tree.base_hash for tree in self.trees_E], np.uint64)

    @property
    def numbers_E(self) -> npt.NDArray[np.int64]:
        """None: what of them has arrived is not told back."""
        return np.zeros(len(self.trees_E), np.int64)

    @property
    def starts_E(self) -> npt.NDArray[np.int64]:
        """First node of each, and the end."""
        return np.cumsum([0, *(tree.num_nodes for tree in self.trees_E)])

    def only(self, entries: npt.NDArray[np.int64]) -> FrozenBatch:
        """Some of the trees."""
        return FrozenBatch(
            trees_E=tuple(self.trees_E[entry] for entry in entries.tolist()),
            bytes_E=self.bytes_E[entries],
        )


def encode(trees: Sequence[FrozenCandidates]) -> target_pb2.CandidateBatch:
    """The message of trees, and nothing else.

    Raises:
        ValueError: See `law_frame.encode`.
    """
    if not trees:
        return target_pb2.CandidateBatch()
    return target_pb2.CandidateBatch(
        frozen=[
            target_pb2.FrozenCandidates(
                handle=one.handle,
                base=tree_pb2.Base(length=one.base_length, hash=one.base_hash),
                round=one.round,
                tokens=one.frozen.tree.tokens_N,
                parents=[parent + 1 for parent in one.frozen.tree.parents_N],
            )
            for one in trees
        ],
        laws=law_frame.encode([one.frozen for one in trees]),
    )


def decode(message: target_pb2.CandidateBatch, vocab_size: int) -> list[FrozenBatch]:
    """The trees of a message, checked completely: what is returned can be verified.

    Args:
        message: The trees.
        vocab_size: Of the target; every token id is below it.

    Returns:
        Batches in the order of arrival; in the second are second trees of sessions, and so on.

    Raises:
        ValueError: They are no trees, or their frame does not fit them or the vocabulary.
    """
    if not message.frozen:
        return []
    nodes: list[law_frame.Nodes] = []
    for one in message.frozen:
        tokens_N = tuple(one.tokens)
        if len(tokens_N) > MAX_TREE:
            raise ValueError(f"a tree of {len(tokens_N)} nodes; at most {MAX_TREE} are taken")
        if (greatest := max(tokens_N, default=0)) >= vocab_size:
            raise ValueError(f"token {greatest} is not among the target's {vocab_size}")
        nodes.append((tokens_N, [parent - 1 for parent in one.parents]))
    share = len(message.laws) // len(message.frozen)
    batches: list[list[tuple[FrozenCandidates, int]]] = []
    times: Counter[int] = Counter()
    for one, frozen in zip(
        message.frozen, law_frame.decode(message.laws, nodes, vocab_size), strict=True
    ):
        tree = FrozenCandidates(
            handle=one.handle,
            base_length=one.base.length,
            base_hash=one.base.hash,
            round=one.round,
            frozen=frozen,
        )
        if times[one.handle] == len(batches):
            batches.append([])
        batches[times[one.handle]].append((tree, one.ByteSize() + share))
        times[one.handle] += 1
    return [
        FrozenBatch(
            trees_E=tuple(tree for tree, _ in batch),
            bytes_E=np.array([size for _, size in batch], np.int64),
        )
        for batch in batches
    ]
