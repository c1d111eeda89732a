"""The frozen laws of one tree on the wire: a msgpack frame that decodes to the very bits that were sampled from.

The frame rides beside the tree's tokens and parents, whose order is the draw order. It is a map:

| key | value |
|---|---|
| `version` | 3 |
| `replacement` | `with` or `without` |
| `counts` | number of listed tokens of each row |
| `ids` | token ids of all rows, one after the other, ascending within a row: `gaps.py`, deflated |
| `levels` | their levels below the row's greatest (`sparse_rows.py`), a byte each, deflated |
| `rest` | level of each token that is not listed, a byte a row; 255: these have no weight. Absent if that is so in all rows |
| `vocab_size` | the drafter's number of token ids, listed or not, at most the target's; there if `rest` is |
| `sources` | row of each node; absent if each internal node has one row, the root's first, then by node index |

A listed token takes some 1.2 to 3 bytes, fewer the more of the vocabulary a row holds. What arrives is checked completely: a
frame that decodes can be verified against.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]  # no stubs
import numpy as np

from outrider.actors.frozen import gaps
from outrider.actors.frozen.sparse_rows import LEVELS, MAX_KEPT, SparseRow, rest_is_exact
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent

VERSION = 3
"""Of the frame; another is refused."""

NO_REST = 255
"""Stands for unlisted tokens without weight."""

_RAW_DEFLATE = -15
"""Window of zlib's streams without header and checksum, which msgpack and gRPC make superfluous."""

_SMALLEST_WINDOW = -9
"""For writing, where nothing is looked back at: it is cleared each time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrozenTree:
    """A tree and the laws it was drawn from."""

    tree: DraftTree
    """The candidates."""

    rows: tuple[SparseRow, ...]
    """The laws that the tree's sources name."""


def encode(frozen: FrozenTree) -> bytes:
    """The frame of a tree. Tokens and parents are not in it."""
    tree, rows = frozen.tree, frozen.rows
    frame: dict[str, object] = {
        "version": VERSION,
        "replacement": str(tree.replacement),
        "counts": [len(row.ids_K) for row in rows],
        "ids": _deflate(gaps.encode([row.ids_K for row in rows])),
        "levels": _deflate(
            _levels(np.concatenate([np.empty(0), *(row.weights_K for row in rows)]))
        ),
    }
    if any(row.rest for row in rows):
        frame["rest"] = b"".join(_rest_level(row) for row in rows)
        frame["vocab_size"] = rows[0].vocab_size
    if tree.sources_N != sources_by_parent(tree.parents_N):
        frame["sources"] = list(tree.sources_N)
    packed: bytes = msgpack.packb(frame)
    return packed


def decode(
    data: bytes, *, tokens_N: Sequence[int], parents_N: Sequence[int], vocab_size: int
) -> FrozenTree:
    """The tree of a frame and of the tokens and parents that came with it.

    Raises:
        ValueError: The frame is not one, or does not fit the tree or the vocabulary.
    """
    frame = _unpacked(data)
    rows = _rows(frame, vocab_size, len(tokens_N))
    sources = frame.get("sources")
    if sources is None:
        sources_N = sources_by_parent(parents_N)
    else:
        sources_N = tuple(_whole_numbers(sources, "sources"))
    if max(sources_N, default=-1) >= len(rows):
        raise ValueError(
            f"draft frame: a node was drawn from row {max(sources_N)}, and there are {len(rows)} rows"
        )
    tree = DraftTree(
        tokens_N=tuple(tokens_N),
        parents_N=tuple(parents_N),
        sources_N=sources_N,
        replacement=Replacement(str(frame["replacement"])),
    )
    check_drawn(tree, rows)
    return FrozenTree(tree=tree, rows=rows)


def check_drawn(tree: DraftTree, rows: Sequence[SparseRow]) -> None:
    """Refuse tokens that cannot have been drawn: not in their row, or drawn twice without replacement.

    Raises:
        ValueError: Naming the node.
    """
    for node, (token, source) in enumerate(zip(tree.tokens_N, tree.sources_N, strict=True)):
        if not rows[source].prob(token):
            raise ValueError(
                f"draft frame: node {node} holds token {token}, which has probability 0 in its row {source}"
            )
    if tree.replacement is Replacement.WITH:
        return
    for siblings in tree.children().values():
        tokens = [tree.tokens_N[node] for node in siblings]
        if len(set(tokens)) < len(tokens):
            raise ValueError(
                f"draft frame: nodes {siblings} hold tokens {tokens}; siblings drawn without replacement differ"
            )


def _unpacked(data: bytes) -> dict[str, object]:
    try:
        frame = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"draft frame: {len(data)} bytes that are not msgpack: {error}") from error
    if not isinstance(frame, dict) or frame.get("version") != VERSION:
        version = frame.get("version") if isinstance(frame, dict) else None
        raise ValueError(f"draft frame: version is {version!r}; this side knows {VERSION}")
    if frame.get("replacement") not in list(Replacement):
        raise ValueError(
            f"draft frame: replacement is {frame.get('replacement')!r}; it must be with or without"
        )
    return frame


def _whole_numbers(value: object, name: str) -> list[int]:
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


def _rest_level(row: SparseRow) -> bytes:
    return _levels(np.array([row.rest])) if row.rest else bytes([NO_REST])


def _rests(
    frame: dict[str, object], counts: Sequence[int], vocab_size: int
) -> tuple[list[float], int]:
    """The weight of unlisted tokens in each row, and how many token ids the drafter has."""
    levels = frame.get("rest")
    if levels is None:
        return [0.0] * len(counts), vocab_size
    size = frame.get("vocab_size")
    if type(size) is not int or not max(counts, default=1) <= size <= vocab_size:
        raise ValueError(
            f"draft frame: rest is for {size!r} token ids; there are {vocab_size}, and {max(counts, default=0)} listed"
        )
    if not isinstance(levels, bytes) or len(levels) != len(counts):
        raise ValueError(f"draft frame: rest must be {len(counts)} bytes, one for each row")
    if any(len(LEVELS) <= level != NO_REST for level in levels):
        raise ValueError(f"draft frame: rest must be levels below {len(LEVELS)}, or {NO_REST}")
    rests = [0.0 if level == NO_REST else float(LEVELS[level]) for level in levels]
    for rest, count in zip(rests, counts, strict=True):
        if not rest_is_exact(rest, size - count):
            raise ValueError(f"draft frame: rest is too great for {size - count} tokens")
    return rests, size


def _rows(frame: dict[str, object], vocab_size: int, num_nodes: int) -> tuple[SparseRow, ...]:
    counts = _whole_numbers(frame.get("counts"), "counts")
    if len(counts) > num_nodes or not all(1 <= count <= MAX_KEPT for count in counts):
        raise ValueError(
            f"draft frame: counts must be 1 to {MAX_KEPT} tokens for each of at most {num_nodes} rows"
        )
    total = sum(counts)
    packed_ids = _inflate(frame.get("ids"), gaps.MAX_BYTES * total, "ids")
    try:
        ids_by_row = gaps.decode(packed_ids, counts, vocab_size)
    except ValueError as error:
        raise ValueError(f"draft frame: ids: {error}") from error
    levels = np.frombuffer(_inflate(frame.get("levels"), total, "levels"), np.uint8)
    if len(levels) != total or (levels >= len(LEVELS)).any():
        raise ValueError(
            f"draft frame: levels must be {total} bytes below {len(LEVELS)}, one for each token"
        )
    weights_by_row = np.split(LEVELS[levels], np.cumsum(counts)[:-1])
    rests, size = _rests(frame, counts, vocab_size)
    if any(len(ids_K) and int(ids_K[-1]) >= size for ids_K in ids_by_row):
        raise ValueError(f"draft frame: ids: a token is not below vocab_size, {size}")
    return tuple(
        SparseRow(ids_K=ids_K, weights_K=weights_K, rest=rest, vocab_size=size)
        # Of no rows `split` makes one.
        for ids_K, weights_K, rest in zip(ids_by_row, weights_by_row, rests, strict=False)
    )
