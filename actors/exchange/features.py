"""What a target's pass knew of committed positions, to a drafter, in one frame: hidden states, or the likeliest next tokens.

An entry is a run of positions of one session. Texts only grow under a handle, and a handle is never used twice by one start of a target, so
a handle and a position say all; what was lost, doubled or overtaken is told by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.exchange.frames import BadFrame, Reader, pack
from outrider.actors.speculation.trees.ragged import sizes_of, starts_of

Uint16s = npt.NDArray[np.uint16]
Int64s = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]

MAX_COUNT = 1 << 20
"""Entries, rows or numbers of a hidden state in one frame."""

CANDIDATE_BYTES = 10
"""Bytes of a candidate that was not drawn, beside its states."""

TOP_BYTES = 6
"""Bytes of one of the likeliest tokens of a position."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RejectedNodes:
    """Candidates that were verified and not drawn. Row r is one of them; those whose parent was drawn hang below the committed text."""

    tokens_R: Int64s
    """Token ids."""

    parents_R: Int64s
    """The parent, as an index of an earlier row of the entry; -1: the committed token at the position before."""

    positions_R: Int64s
    """Absolute positions."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """Rows of several sessions. Entry e has rows `starts_E[e]` to `starts_E[e + 1]`."""

    revision: int
    """The target's, as its offer says."""

    handles_E: npt.NDArray[np.uint64]
    """The target's handles of the sessions."""

    firsts_E: Int64s
    """Position of each entry's first row; the others follow, one position each. Of an entry of candidates: the least position."""

    starts_E: Int64s
    """First row of each entry; one number more than there are entries."""

    states_RLD: Uint16s
    """Hidden states, as the bits of bfloat16 numbers. L is 0 if none were asked for."""

    top_tokens_RK: Int64s
    """The likeliest tokens at the next position, the likeliest first. K is 0 if none were asked for."""

    top_logprobs_RK: Float32s
    """Their natural log-probabilities under the model's own distribution, in half precision on the wire."""

    rejected: RejectedNodes | None = None
    """The rows are candidates, not positions of the text."""

    num_bytes: int = 0
    """Size of the frame that this was read from."""

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return int(self.starts_E[-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on the wire."""
        _, num_layers, width = self.states_RLD.shape
        of_node = CANDIDATE_BYTES if self.rejected is not None else 0
        of_tops = TOP_BYTES * int(self.top_tokens_RK.shape[1])
        return 2 * int(num_layers) * int(width) + of_tops + of_node

    def split(self, most_bytes: int) -> Iterator[Features]:
        """The same in parts of about so many bytes at most. Candidates of one session stay together, for they name each other."""
        if self.rejected is not None or self.num_rows * self.row_bytes <= most_bytes:
            yield self
            return
        most_rows = max(most_bytes // self.row_bytes, 1)
        for start in range(0, self.num_rows, most_rows):
            yield self._rows(start, min(start + most_rows, self.num_rows))

    def _rows(self, start: int, end: int) -> Features:
        firsts_E = np.maximum(self.starts_E[:-1], start)
        counts_E = np.maximum(np.minimum(self.starts_E[1:], end) - firsts_E, 0)
        has = counts_E > 0
        return Features(
            revision=self.revision,
            handles_E=self.handles_E[has],
            firsts_E=(self.firsts_E + firsts_E - self.starts_E[:-1])[has],
            starts_E=starts_of(counts_E[has]),
            states_RLD=self.states_RLD[start:end],
            top_tokens_RK=self.top_tokens_RK[start:end],
            top_logprobs_RK=self.top_logprobs_RK[start:end],
        )


def encode(features: Features) -> bytes:
    """The frame of some features."""
    _, num_layers, width = features.states_RLD.shape
    nodes = features.rejected
    arrays = [
        np.array([features.revision], "<u8"),
        features.handles_E.astype("<u8", copy=False),
        features.firsts_E.astype("<u4"),
        sizes_of(features.starts_E).astype("<u4"),
    ]
    if nodes is not None:
        arrays += [
            nodes.tokens_R.astype("<u4"),
            nodes.positions_R.astype("<u4"),
            (nodes.parents_R + 1).astype("<u2"),
        ]
    arrays += [
        features.top_tokens_RK.astype("<u4"),
        features.top_logprobs_RK.astype("<f2"),
        features.states_RLD.astype("<u2", copy=False),
    ]
    counts = [
        len(features.handles_E),
        features.num_rows,
        num_layers,
        width,
        features.top_tokens_RK.shape[1],
        int(nodes is not None),
    ]
    return pack(counts, arrays)


def decode(frame: bytes) -> Features:
    """The features of a frame. Whether the numbers are finite is not looked at.

    Raises:
        BadFrame: The bytes are no such frame, or a candidate's parent is no earlier one at the position before.
    """
    reader = Reader(frame, 6, MAX_COUNT)
    num_entries, num_rows, num_layers, width, top_k, is_rejected = reader.counts
    revision = int(reader.take("<u8", 1)[0])
    handles_E = reader.take("<u8", num_entries)
    firsts_E = reader.take("<u4", num_entries).astype(np.int64)
    starts_E = starts_of(reader.take("<u4", num_entries).astype(np.int64))
    rejected = None
    if is_rejected:
        rejected = RejectedNodes(
            tokens_R=reader.take("<u4", num_rows).astype(np.int64),
            positions_R=reader.take("<u4", num_rows).astype(np.int64),
            parents_R=reader.take("<u2", num_rows).astype(np.int64) - 1,
        )
    tokens_RK = reader.take("<u4", num_rows * top_k).astype(np.int64).reshape(num_rows, top_k)
    logprobs_RK = reader.take("<f2", num_rows * top_k).astype(np.float32)
    states_RLD = reader.take("<u2", num_rows * num_layers * width)
    reader.end()
    if starts_E[-1] != num_rows:
        raise BadFrame(f"entries of {starts_E[-1]} rows in all, but {num_rows} rows")
    if rejected is not None:
        _check(rejected, starts_E)
    return Features(
        revision=revision,
        handles_E=handles_E,
        firsts_E=firsts_E,
        starts_E=starts_E,
        states_RLD=states_RLD.reshape(num_rows, num_layers, width),
        top_tokens_RK=tokens_RK,
        top_logprobs_RK=logprobs_RK.reshape(num_rows, top_k),
        rejected=rejected,
        num_bytes=len(frame),
    )


def check_asked(features: Features, request: FeedbackRequest) -> None:
    """Refuses features that are of another shape than was asked for, or of nothing.

    Raises:
        BadFrame: They are; whoever reads them together with those of other targets could read none.
    """
    _, num_layers, width = features.states_RLD.shape
    top_k = features.top_tokens_RK.shape[1]
    if num_layers not in (0, len(request.layers)) or top_k > request.top_k:
        raise BadFrame(f"{num_layers} layers and {top_k} likely tokens, which were not asked for")
    if num_layers and request.width not in (0, width):
        raise BadFrame(f"states of {width} numbers; {request.width} were asked for")
    if features.rejected is not None and not (request.wants_rejected and num_layers):
        raise BadFrame("candidates that were not drawn, which were not asked for")
    if not (num_layers or top_k) or not sizes_of(features.starts_E).all():
        raise BadFrame("an entry of nothing")


def _check(nodes: RejectedNodes, starts_E: Int64s) -> None:
    firsts_R = np.repeat(starts_E[:-1], sizes_of(starts_E))
    places_R = np.arange(len(nodes.tokens_R)) - firsts_R
    if (nodes.parents_R >= places_R).any():
        raise BadFrame("a candidate's parent is no earlier one of its session")
    below = (nodes.parents_R >= 0).nonzero()[0]
    above = (firsts_R + nodes.parents_R)[below]
    if (nodes.positions_R[below] != nodes.positions_R[above] + 1).any():
        raise BadFrame("a candidate is not at the position after its parent's")


def widened(bits: Uint16s) -> Float32s:
    """The numbers that are meant by the bits of bfloat16 numbers: exactly these."""
    numbers: Float32s = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers


def narrowed(numbers: Float32s) -> Uint16s:
    """The bits of the bfloat16 numbers that are nearest, ties to even; not-a-numbers stay such."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = np.where(np.isnan(numbers), bits | np.uint32(0x400000), rounded)
    return (kept >> np.uint32(16)).astype(np.uint16)
