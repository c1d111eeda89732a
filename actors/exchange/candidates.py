"""Candidates of several sessions, from a drafter to a target, in one frame.

A tree hangs below a base: a length of the session's text and the rolling hash of so many tokens. It is self-contained: a node
that extends something sent earlier carries its ancestors along, so a frame may be lost, repeated or overtaken without harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.frames import BadFrame, Reader, microseconds, narrow, pack
from outrider.actors.speculation.trees.ragged import sizes_of, starts_of

MAX_NODES = 1 << 20
"""Nodes and sessions of one frame: far above what credits allow a drafter that serves hundreds of sessions; a larger one is not ours."""

MAX_TREE = 65_536
"""Nodes of one tree, far above what a target takes of one into a pass."""


POOLED, FROZEN = range(2)
"""Kinds of candidates: those that a target unites with others in a pool, and frozen trees. A session takes one kind."""

ENTRY_BYTES = 26
"""Bytes of a session in a frame, beside its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Trees of several sessions. Entry e has nodes `starts_E[e]` to `starts_E[e + 1]`."""

    kind: ClassVar[int] = POOLED
    may_be_ahead: ClassVar[bool] = False
    """Whether trees may hang below texts that are only expected."""

    handles_E: npt.NDArray[np.uint64]
    """The target's handles of the sessions."""

    lengths_E: npt.NDArray[np.int64]
    """Length of each base, in tokens."""

    hashes_E: npt.NDArray[np.uint64]
    """Rolling hash of each base."""

    numbers_E: npt.NDArray[np.int64]
    """Number of the entry among those of the drafter for the session, from 1."""

    starts_E: npt.NDArray[np.int64]
    """First node of each entry; one number more than there are entries."""

    tokens_N: npt.NDArray[np.int64]
    """Token ids."""

    parents_N: npt.NDArray[np.int64]
    """Index of the parent within the entry, -1 for a child of the base; less than the node's own index."""

    estimates_N: npt.NDArray[np.uint8]
    """Probability that the target draws the token if it draws the parent, in 255ths."""

    held_s: float = 0.0
    """Seconds for which the drafter has held candidates back, for the target could not use them yet: what it needs is less by this."""

    sent_us: int = 0
    """What the drafter's clock showed when it sent this (`frames.clock_us`): comes back in verdicts (`Verdicts.echo_us`). 0: it does not say."""

    num_bytes: int = 0
    """Size of the frame that this was read from."""

    @property
    def num_nodes(self) -> int:
        """Nodes in all."""
        return len(self.tokens_N)

    @property
    def entries_N(self) -> npt.NDArray[np.int64]:
        """The entry of each node."""
        return np.repeat(np.arange(len(self.handles_E)), sizes_of(self.starts_E))

    @property
    def bytes_E(self) -> npt.NDArray[np.int64]:
        """Each entry's share of the frame."""
        sizes_E = sizes_of(self.starts_E)
        node_bytes = (self.num_bytes - ENTRY_BYTES * len(sizes_E)) // max(self.num_nodes, 1)
        shares_E: npt.NDArray[np.int64] = ENTRY_BYTES + sizes_E * max(node_bytes, 1)
        return shares_E

    def only(self, entries: npt.NDArray[np.int64]) -> Candidates:
        """Some of the entries."""
        sizes_E = sizes_of(self.starts_E)
        is_in_N = np.zeros(len(sizes_E), np.bool_)
        is_in_N[entries] = True
        nodes = np.repeat(is_in_N, sizes_E)
        return Candidates(
            handles_E=self.handles_E[entries],
            lengths_E=self.lengths_E[entries],
            hashes_E=self.hashes_E[entries],
            numbers_E=self.numbers_E[entries],
            starts_E=starts_of(sizes_E[entries]),
            tokens_N=self.tokens_N[nodes],
            parents_N=self.parents_N[nodes],
            estimates_N=self.estimates_N[nodes],
            held_s=self.held_s,
            sent_us=self.sent_us,
            num_bytes=self.num_bytes,
        )


def encode(candidates: Candidates) -> bytes:
    """The frame of some candidates."""
    sizes_E = sizes_of(candidates.starts_E)
    kind = narrow(int(candidates.tokens_N.max(initial=0)))
    largest = int(sizes_E.max(initial=0))
    link = "u1" if largest < 1 << 8 else "<u2"
    return pack(
        [len(sizes_E), candidates.num_nodes, np.dtype(kind).itemsize, np.dtype(link).itemsize],
        [
            np.array([microseconds(candidates.held_s), candidates.sent_us], "<u4"),
            candidates.handles_E.astype("<u8", copy=False),
            candidates.hashes_E.astype("<u8", copy=False),
            candidates.lengths_E.astype("<u4"),
            candidates.numbers_E.astype("<u4"),
            sizes_E.astype("<u2"),
            candidates.tokens_N.astype(kind),
            (candidates.parents_N + 1).astype(link),
            candidates.estimates_N,
        ],
    )


def decode(frame: bytes, vocab_size: int) -> Candidates:
    """The candidates of a frame, checked completely: what is returned can be grafted and verified.

    Args:
        frame: The bytes.
        vocab_size: Of the target; every token id is below it.

    Raises:
        BadFrame: The bytes are no such frame, a parent is no earlier node, or the target has no such token id.
    """
    reader = Reader(frame, 4, MAX_NODES)
    num_entries, num_nodes, token_bytes, link_bytes = reader.counts
    if token_bytes not in (2, 4) or link_bytes not in (1, 2):
        raise BadFrame(f"tokens of {token_bytes} bytes and parents of {link_bytes}; not ours")
    held_us, sent_us = reader.take("<u4", 2).tolist()
    handles_E = reader.take("<u8", num_entries)
    hashes_E = reader.take("<u8", num_entries)
    lengths_E = reader.take("<u4", num_entries).astype(np.int64)
    numbers_E = reader.take("<u4", num_entries).astype(np.int64)
    starts_E = starts_of(reader.take("<u2", num_entries))
    tokens_N = reader.take(f"<u{token_bytes}", num_nodes).astype(np.int64)
    parents_N = reader.take(f"<u{link_bytes}", num_nodes).astype(np.int64) - 1
    estimates_N = reader.take("u1", num_nodes)
    reader.end()
    if starts_E[-1] != num_nodes:
        raise BadFrame(f"entries of {starts_E[-1]} nodes in all, but {num_nodes} nodes")
    places_N = np.arange(num_nodes) - np.repeat(starts_E[:-1], sizes_of(starts_E))
    wrong = (parents_N >= places_N).nonzero()[0]
    if len(wrong):
        raise BadFrame(
            f"node {places_N[wrong[0]]} has parent {parents_N[wrong[0]]}; a parent must be an earlier node"
        )
    if num_nodes and int(tokens_N.max()) >= vocab_size:
        raise BadFrame(f"token {int(tokens_N.max())} is not among the target's {vocab_size}")
    return Candidates(
        handles_E=handles_E,
        lengths_E=lengths_E,
        hashes_E=hashes_E,
        numbers_E=numbers_E,
        starts_E=starts_E,
        tokens_N=tokens_N,
        parents_N=parents_N,
        estimates_N=estimates_N,
        held_s=1e-6 * held_us,
        sent_us=sent_us,
        num_bytes=len(frame),
    )
