"""The frozen laws of one tree on the wire: a msgpack frame that decodes to the very bits that were sampled from.

The frame rides beside the tree's tokens and parents, whose order is the draw order. It is a map:

| key | value |
|---|---|
| `version` | 1 |
| `replacement` | `with` or `without` |
| `counts` | number of tokens of each row |
| `ids` | token ids of all rows, one after the other, little-endian uint32, ascending within a row |
| `weights` | their weights, little-endian float16 |
| `sources` | row of each node; absent if each internal node has one row, the root's first, then by node index |

A row of 64 tokens takes 384 bytes. What arrives is checked completely: a frame that decodes can be verified against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]  # no stubs
import numpy as np

from outrider.actors.speculation.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.sparse import SparseRow

VERSION = 1
"""Of the frame; another is refused."""

_IDS = np.dtype("<u4")
_WEIGHTS = np.dtype("<f2")


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
        "ids": b"".join(row.ids_K.astype(_IDS).tobytes() for row in rows),
        "weights": b"".join(row.weights_K.astype(_WEIGHTS).tobytes() for row in rows),
    }
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
    rows = _rows(frame, vocab_size)
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
    possible = [frozenset(row.ids_K.tolist()) for row in rows]
    for node, (token, source) in enumerate(zip(tree.tokens_N, tree.sources_N, strict=True)):
        if token not in possible[source]:
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


def _rows(frame: dict[str, object], vocab_size: int) -> tuple[SparseRow, ...]:
    counts = _whole_numbers(frame.get("counts"), "counts")
    ids, weights = frame.get("ids"), frame.get("weights")
    total = sum(counts)
    if not isinstance(ids, bytes) or len(ids) != total * _IDS.itemsize:
        raise ValueError(
            f"draft frame: ids must be {total * _IDS.itemsize} bytes for {total} tokens"
        )
    if not isinstance(weights, bytes) or len(weights) != total * _WEIGHTS.itemsize:
        raise ValueError(
            f"draft frame: weights must be {total * _WEIGHTS.itemsize} bytes for {total} tokens"
        )
    all_ids = np.frombuffer(ids, _IDS).astype(np.uint32)
    all_weights = np.frombuffer(weights, _WEIGHTS).astype(np.float16)
    rows: list[SparseRow] = []
    start = 0
    for index, count in enumerate(counts):
        row = SparseRow(
            ids_K=all_ids[start : start + count], weights_K=all_weights[start : start + count]
        )
        _check_row(row, index, vocab_size)
        rows.append(row)
        start += count
    return tuple(rows)


def _check_row(row: SparseRow, index: int, vocab_size: int) -> None:
    ids_K, weights_K = row.ids_K, row.weights_K
    if not len(ids_K) or int(ids_K[-1]) >= vocab_size or not (ids_K[1:] > ids_K[:-1]).all():
        raise ValueError(
            f"draft frame: row {index} must hold ascending token ids below {vocab_size}, at least one"
        )
    if not ((weights_K > 0.0) & (weights_K < np.inf)).all():
        raise ValueError(f"draft frame: row {index} must hold positive finite weights")
