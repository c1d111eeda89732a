"""A frozen tree on its way from a drafter to a target: the same for both ends, and its message.

It is read as `exchange.candidates.Candidates` are: arrays, of one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.candidates import FROZEN, MAX_NODES
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

    num_bytes: int = 0
    """Size of the message that this was read from."""

    kind: ClassVar[int] = FROZEN
    may_be_ahead: ClassVar[bool] = True
    held_s: ClassVar[float] = 0.0
    """It goes out as soon as it is complete."""

    @property
    def num_nodes(self) -> int:
        """Nodes of the tree."""
        return self.frozen.tree.num_nodes

    @property
    def handles_E(self) -> npt.NDArray[np.uint64]:
        """See `Candidates`; so are the others."""
        return np.array([self.handle], np.uint64)

    @property
    def lengths_E(self) -> npt.NDArray[np.int64]:
        """Length of the base."""
        return np.array([self.base_length])

    @property
    def hashes_E(self) -> npt.NDArray[np.uint64]:
        """Hash of the base."""
        return np.array([self.base_hash], np.uint64)

    @property
    def numbers_E(self) -> npt.NDArray[np.int64]:
        """None: what of it has arrived is not told back."""
        return np.zeros(1, np.int64)

    @property
    def starts_E(self) -> npt.NDArray[np.int64]:
        """First node, and the end."""
        return np.array([0, self.num_nodes])

    @property
    def bytes_E(self) -> npt.NDArray[np.int64]:
        """Size on the wire."""
        return np.array([self.num_bytes])

    def only(self, entries: npt.NDArray[np.int64]) -> Self:
        """Its entry; there is no other to choose."""
        assert len(entries) == 1, "there is one"
        return self


def encode(candidates: FrozenCandidates) -> target_pb2.FrozenCandidates:
    """The message of a tree."""
    tree = candidates.frozen.tree
    return target_pb2.FrozenCandidates(
        handle=candidates.handle,
        base=tree_pb2.Base(length=candidates.base_length, hash=candidates.base_hash),
        round=candidates.round,
        tree=tree_pb2.FrozenTree(
            tokens=tree.tokens_N,
            parents=[parent + 1 for parent in tree.parents_N],
            frame=law_frame.encode(candidates.frozen),
        ),
    )


def decode(message: target_pb2.FrozenCandidates, vocab_size: int) -> FrozenCandidates:
    """The tree of a message, checked completely: what is returned can be verified.

    Args:
        message: The tree.
        vocab_size: Of the target; every token id is below it.

    Raises:
        ValueError: It is no tree, or its frame does not fit it or the vocabulary.
    """
    tree = message.tree
    if len(tree.tokens) > MAX_NODES:
        raise ValueError(f"a tree of {len(tree.tokens)} nodes; at most {MAX_NODES} are taken")
    if (greatest := max(tree.tokens, default=0)) >= vocab_size:
        raise ValueError(f"token {greatest} is not among the target's {vocab_size}")
    frozen = law_frame.decode(
        tree.frame,
        tokens_N=tree.tokens,
        parents_N=[parent - 1 for parent in tree.parents],
        vocab_size=vocab_size,
    )
    return FrozenCandidates(
        handle=message.handle,
        base_length=message.base.length,
        base_hash=message.base.hash,
        round=message.round,
        frozen=frozen,
        num_bytes=message.ByteSize(),
    )
