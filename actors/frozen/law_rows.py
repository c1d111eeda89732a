"""Rows of laws as fields of a frame, and back: what they are is in `law_frame.py`. Work is done for all rows at once."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.frozen import gaps
from outrider.actors.frozen.sparse_rows import LEVELS, MAX_KEPT, SparseRow, rest_is_exact
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.trees.ragged import starts_of

Int64s = NDArray[np.int64]

NO_REST = 255
"""Stands for unlisted tokens without weight."""

_RAW_DEFLATE = -15
"""Window of zlib's streams without header and checksum, which msgpack and gRPC make superfluous."""

_SMALLEST_WINDOW = -9
"""For writing, where nothing is looked back at: it is cleared each time."""

_ID_BITS = 32


def fields_of(rows: Sequence[SparseRow]) -> dict[str, object]:
    """The fields that rows take in a frame.

    Raises:
        ValueError: Weights are not levels, or rows with unlisted tokens are of different vocabularies.
    """
    counts = [len(row.ids_K) for row in rows]
    ids_T = np.concatenate([np.empty(0, np.uint32), *(row.ids_K for row in rows)])
    weights_T = np.concatenate([np.empty(0), *(row.weights_K for row in rows)])
    fields: dict[str, object] = {
        "counts": counts,
        "ids": _deflate(gaps.encode(ids_T, starts_of(np.array(counts, np.int64))[:-1])),
        "levels": _deflate(_levels(weights_T)),
    }
    sizes = {row.vocab_size for row in rows if row.rest}
    if len(sizes) > 1:
        raise ValueError(f"draft rows of {' and '.join(map(str, sorted(sizes)))} token ids")
    if sizes:
        rests_R = np.array([row.rest for row in rows])
        levels_R = np.full(len(rows), NO_REST, np.uint8)
        levels_R[rests_R > 0.0] = np.frombuffer(_levels(rests_R[rests_R > 0.0]), np.uint8)
        fields |= {"rest": levels_R.tobytes(), "vocab_size": sizes.pop()}
    return fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LawRows:
    """The rows of a frame."""

    keys_T: Int64s
    """Row and id of each listed token, as one number; ascending."""
    rests_R: Float64s
    """Weight of each token that a row does not list."""
    vocab_size: int
    """The drafter's number of token ids."""
    made: tuple[SparseRow, ...]
    """All of them, of all trees one after the other."""

    @classmethod
    def of(cls, frame: dict[str, object], num_rows: int, vocab_size: int) -> LawRows:
        """Reads them.

        Args:
            frame: The frame.
            num_rows: How many its trees have.
            vocab_size: Of the target.

        Raises:
            ValueError: The fields are not those of so many rows, or do not fit the vocabulary.
        """
        counts = whole_numbers(frame.get("counts"), "counts")
        if len(counts) != num_rows or not all(1 <= count <= MAX_KEPT for count in counts):
            raise ValueError(
                f"draft frame: counts must be 1 to {MAX_KEPT} tokens for each of {num_rows} rows"
            )
        starts_R = starts_of(np.array(counts, np.int64))
        total = int(starts_R[-1])
        packed_ids = _inflate(frame.get("ids"), gaps.MAX_BYTES * total, "ids")
        try:
            ids_T = gaps.decode(packed_ids, starts_R[:-1], total, vocab_size)
        except ValueError as error:
            raise ValueError(f"draft frame: ids: {error}") from error
        levels_T = np.frombuffer(_inflate(frame.get("levels"), total, "levels"), np.uint8)
        if len(levels_T) != total or (levels_T >= len(LEVELS)).any():
            raise ValueError(
                f"draft frame: levels must be {total} bytes below {len(LEVELS)}, one for each token"
            )
        weights_T = LEVELS[levels_T]
        rests_R, size = _rests(frame, counts, vocab_size)
        if total and int(ids_T.max()) >= size:
            raise ValueError(f"draft frame: ids: a token is not below vocab_size, {size}")
        bounds = starts_R.tolist()
        return cls(
            keys_T=(np.arange(num_rows).repeat(counts) << _ID_BITS) + ids_T,
            rests_R=rests_R,
            vocab_size=size,
            made=tuple(
                SparseRow(
                    ids_K=ids_T[start:end],
                    weights_K=weights_T[start:end],
                    rest=rest,
                    vocab_size=size,
                )
                for start, end, rest in zip(bounds[:-1], bounds[1:], rests_R.tolist(), strict=True)
            ),
        )

    def check_drawn(self, trees: Sequence[DraftTree], sizes: Sequence[int]) -> None:
        """Refuses tokens that have no probability in their rows.

        Args:
            trees: Those of the frame.
            sizes: Rows of each.

        Raises:
            ValueError: Naming the node.
        """
        firsts = starts_of(np.array(sizes, np.int64))[:-1].tolist()
        rows_N = np.array(
            [
                first + source
                for first, one in zip(firsts, trees, strict=True)
                for source in one.sources_N
            ],
            np.int64,
        )
        if not len(rows_N):
            return
        tokens_N = np.array([token for one in trees for token in one.tokens_N], np.int64)
        keys_N = (rows_N << _ID_BITS) + tokens_N
        places_N = np.minimum(self.keys_T.searchsorted(keys_N), len(self.keys_T) - 1)
        is_listed_N = self.keys_T[places_N] == keys_N
        has_rest_N = (self.rests_R[rows_N] > 0.0) & (tokens_N < self.vocab_size)
        if (is_listed_N | has_rest_N).all():
            return
        bad = int((~(is_listed_N | has_rest_N)).argmax())
        for one in trees:
            if bad < one.num_nodes:
                raise ValueError(
                    f"draft frame: node {bad} holds token {one.tokens_N[bad]}, which has probability 0 in its "
                    f"row {one.sources_N[bad]}"
                )
            bad -= one.num_nodes


def whole_numbers(value: object, name: str) -> list[int]:
    """A field that must hold a list of whole numbers.

    Raises:
        ValueError: It does not.
    """
    if isinstance(value, list) and all(type(item) is int and item >= 0 for item in value):
        return value
    raise ValueError(f"draft frame: {name} must be a list of whole numbers")


def _deflate(data: bytes) -> bytes:
    """The Huffman code of bytes that have no repetitions to find."""
    # A block holds 2^(memory + 6) bytes; more memory than one block needs is cleared for nothing.
    memory = min(max(len(data).bit_length() - 6, 1), 9)
    deflating = zlib.compressobj(6, zlib.DEFLATED, _SMALLEST_WINDOW, memory, zlib.Z_HUFFMAN_ONLY)
    return deflating.compress(data) + deflating.flush()


def _inflate(value: object, limit: int, name: str) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"draft frame: {name} must be bytes")  # noqa: TRY004 - from the wire
    inflating = zlib.decompressobj(_RAW_DEFLATE)
    try:
        data = inflating.decompress(value, limit + 1)
    except zlib.error as error:
        raise ValueError(f"draft frame: {name} cannot be inflated: {error}") from error
    if not inflating.eof or inflating.unused_data or len(data) > limit:
        raise ValueError(
            f"draft frame: {name} must inflate to at most {limit} bytes, and to an end"
        )
    return data


def _levels(weights_K: Float64s) -> bytes:
    """The place of each weight in `LEVELS`."""
    places_K = len(LEVELS) - 1 - np.searchsorted(LEVELS[::-1], weights_K)
    if (places_K < 0).any() or (LEVELS[places_K] != weights_K).any():
        raise ValueError("a draft row has weights that are not levels; make it with `freeze`")
    return places_K.astype(np.uint8).tobytes()


def _rests(
    frame: dict[str, object], counts: Sequence[int], vocab_size: int
) -> tuple[Float64s, int]:
    """The weight of unlisted tokens in each row, and how many token ids the drafter has."""
    levels = frame.get("rest")
    if levels is None:
        return np.zeros(len(counts)), vocab_size
    size = frame.get("vocab_size")
    if type(size) is not int or not max(counts, default=1) <= size <= vocab_size:
        raise ValueError(
            f"draft frame: rest is for {size!r} token ids; there are {vocab_size}, and {max(counts, default=0)} listed"
        )
    if not isinstance(levels, bytes) or len(levels) != len(counts):
        raise ValueError(f"draft frame: rest must be {len(counts)} bytes, one for each row")
    levels_R = np.frombuffer(levels, np.uint8)
    has_rest_R = levels_R != NO_REST
    if (levels_R[has_rest_R] >= len(LEVELS)).any():
        raise ValueError(f"draft frame: rest must be levels below {len(LEVELS)}, or {NO_REST}")
    rests_R = np.zeros(len(counts))
    rests_R[has_rest_R] = LEVELS[levels_R[has_rest_R]]
    for rest, count in zip(rests_R.tolist(), counts, strict=True):
        if not rest_is_exact(rest, size - count):
            raise ValueError(f"draft frame: rest is too great for {size - count} tokens")
    return rests_R, size
