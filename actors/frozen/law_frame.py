"""The laws of frozen trees on the wire: a msgpack frame that decodes to the very bits that were sampled from.

One frame for all trees of a message. It rides beside their tokens and parents, whose order is the draw order. It is a map:

| key | value |
|---|---|
| `version` | 4 |
| `replacements` | for each tree a byte: 0 where siblings were drawn with replacement, 1 where without |
| `trees` | number of rows of each tree |
| `counts` | number of listed tokens of each row, of all trees one after the other; so are the others |
| `ids` | token ids of all rows, ascending within a row: `gaps.py`, deflated |
| `levels` | their levels below the row's greatest (`sparse_rows.py`), a byte each, deflated |
| `rest` | level of each token that is not listed, a byte a row; 255: these have no weight. Absent if that is so in all rows |
| `vocab_size` | the drafter's number of token ids, listed or not, at most the target's; there if `rest` is |
| `sources` | row of each node among those of its tree; absent if each internal node has one row, the root's first, then by node index |

A listed token takes some 1.2 to 3 bytes, fewer the more of the vocabulary a row holds. What arrives is checked completely: a
frame that decodes can be verified against. Work is done for all rows at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]  # no stubs
import numpy as np
from numpy.typing import NDArray

from outrider.actors.frozen import gaps
from outrider.actors.frozen.sparse_rows import LEVELS, MAX_KEPT, SparseRow, rest_is_exact
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.trees.ragged import starts_of

Int64s = NDArray[np.int64]

VERSION = 4
"""Of the frame; another is refused."""

NO_REST = 255
"""Stands for unlisted tokens without weight."""

REPLACEMENTS = (Replacement.WITH, Replacement.WITHOUT)
"""By the byte that stands for it."""

_RAW_DEFLATE = -15
"""Window of zlib's streams without header and checksum, which msgpack and gRPC make superfluous."""

_SMALLEST_WINDOW = -9
"""For writing, where nothing is looked back at: it is cleared each time."""

_ID_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrozenTree:
    """A tree and the laws it was drawn from."""

    tree: DraftTree
    """The candidates."""

    rows: tuple[SparseRow, ...]
    """The laws that the tree's sources name."""


Nodes = tuple[Sequence[int], Sequence[int]]
"""Token and parent of each node of a tree, -1 for a child of the base."""


def encode(trees: Sequence[FrozenTree]) -> bytes:
    """The frame of trees. Tokens and parents are not in it.

    Raises:
        ValueError: Weights are not levels, or rows with unlisted tokens are of different vocabularies.
    """
    rows = [row for one in trees for row in one.rows]
    counts = [len(row.ids_K) for row in rows]
    ids_T = np.concatenate([np.empty(0, np.uint32), *(row.ids_K for row in rows)])
    weights_T = np.concatenate([np.empty(0), *(row.weights_K for row in rows)])
    frame: dict[str, object] = {
        "version": VERSION,
        "replacements": bytes(REPLACEMENTS.index(one.tree.replacement) for one in trees),
        "trees": [len(one.rows) for one in trees],
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
        frame |= {"rest": levels_R.tobytes(), "vocab_size": sizes.pop()}
    if any(one.tree.sources_N != sources_by_parent(one.tree.parents_N) for one in trees):
        frame["sources"] = [source for one in trees for source in one.tree.sources_N]
    packed: bytes = msgpack.packb(frame)
    return packed


def decode(data: bytes, nodes: Sequence[Nodes], vocab_size: int) -> list[FrozenTree]:
    """The trees of a frame and of the nodes that came with it.

    Args:
        data: The frame.
        nodes: Of each tree.
        vocab_size: Of the target.

    Raises:
        ValueError: The frame is not one, or does not fit the trees or the vocabulary.
    """
    frame = _unpacked(data)
    replacements = _replacements(frame, len(nodes))
    sizes = _whole_numbers(frame.get("trees"), "trees")
    if len(sizes) != len(nodes) or any(
        size > len(tokens_N) for size, (tokens_N, _) in zip(sizes, nodes, strict=True)
    ):
        raise ValueError(
            f"draft frame: trees must be at most as many rows as nodes for each of {len(nodes)}"
        )
    rows = _Rows.of(frame, sum(sizes), vocab_size)
    all_sources = frame.get("sources")
    if all_sources is not None:
        all_sources = _whole_numbers(all_sources, "sources")
        if len(all_sources) != sum(len(tokens_N) for tokens_N, _ in nodes):
            raise ValueError(f"draft frame: sources are for {len(all_sources)} nodes")
    trees: list[FrozenTree] = []
    first_row = first_node = 0
    for (tokens_N, parents_N), size, replacement in zip(nodes, sizes, replacements, strict=True):
        if all_sources is None:
            sources_N = sources_by_parent(parents_N)
        else:
            sources_N = tuple(all_sources[first_node : first_node + len(tokens_N)])
        if max(sources_N, default=-1) >= size:
            raise ValueError(
                f"draft frame: a node was drawn from row {max(sources_N)}, and there are {size} rows"
            )
        tree = DraftTree(
            tokens_N=tuple(tokens_N),
            parents_N=tuple(parents_N),
            sources_N=sources_N,
            replacement=replacement,
        )
        _check_siblings(tree)
        trees.append(FrozenTree(tree=tree, rows=rows.made[first_row : first_row + size]))
        first_row, first_node = first_row + size, first_node + len(tokens_N)
    rows.check_drawn(trees, sizes)
    return trees


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """The rows of a frame."""

    keys_T: Int64s
    """Row and id of each listed token, as one number; ascending."""
    rests_R: Float64s
    vocab_size: int
    made: tuple[SparseRow, ...]

    @classmethod
    def of(cls, frame: dict[str, object], num_rows: int, vocab_size: int) -> _Rows:
        """Those of a frame that says of so many."""
        counts = _whole_numbers(frame.get("counts"), "counts")
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

    def check_drawn(self, trees: Sequence[FrozenTree], sizes: Sequence[int]) -> None:
        """Refuses tokens that have no probability in their rows.

        Raises:
            ValueError: Naming the node.
        """
        firsts = starts_of(np.array(sizes, np.int64))[:-1].tolist()
        rows_N = np.array(
            [
                first + source
                for first, one in zip(firsts, trees, strict=True)
                for source in one.tree.sources_N
            ],
            np.int64,
        )
        if not len(rows_N):
            return
        tokens_N = np.array([token for one in trees for token in one.tree.tokens_N], np.int64)
        keys_N = (rows_N << _ID_BITS) + tokens_N
        places_N = np.minimum(self.keys_T.searchsorted(keys_N), len(self.keys_T) - 1)
        is_listed_N = self.keys_T[places_N] == keys_N
        has_rest_N = (self.rests_R[rows_N] > 0.0) & (tokens_N < self.vocab_size)
        if (is_listed_N | has_rest_N).all():
            return
        bad = int((~(is_listed_N | has_rest_N)).argmax())
        for one in trees:
            if bad < one.tree.num_nodes:
                raise ValueError(
                    f"draft frame: node {bad} holds token {one.tree.tokens_N[bad]}, which has probability 0 in its "
                    f"row {one.tree.sources_N[bad]}"
                )
            bad -= one.tree.num_nodes


def _check_siblings(tree: DraftTree) -> None:
    """Refuses tokens that were drawn twice without replacement.

    Raises:
        ValueError: Naming the nodes.
    """
    if tree.replacement is Replacement.WITH:
        return
    if len(set(zip(tree.parents_N, tree.tokens_N, strict=True))) == tree.num_nodes:
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
    return frame


def _replacements(frame: dict[str, object], count: int) -> list[Replacement]:
    kinds = frame.get("replacements")
    if (
        not isinstance(kinds, bytes)
        or len(kinds) != count
        or any(kind >= len(REPLACEMENTS) for kind in kinds)
    ):
        raise ValueError(
            f"draft frame: replacements are {kinds!r}; they must be {count} bytes, each 0 (with) or 1 (without)"
        )
    return [REPLACEMENTS[kind] for kind in kinds]


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
