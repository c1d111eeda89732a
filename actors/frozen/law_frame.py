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
frame that decodes can be verified against. What concerns rows, `counts` to `vocab_size`, is in `law_rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]  # no stubs

from outrider.actors.frozen import law_rows
from outrider.actors.frozen.law_rows import LawRows, whole_numbers
from outrider.actors.frozen.sparse_rows import SparseRow
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent

VERSION = 4
"""Of the frame; another is refused."""

REPLACEMENTS = (Replacement.WITH, Replacement.WITHOUT)
"""By the byte that stands for it."""


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
    frame: dict[str, object] = {
        "version": VERSION,
        "replacements": bytes(REPLACEMENTS.index(one.tree.replacement) for one in trees),
        "trees": [len(one.rows) for one in trees],
        **law_rows.fields_of([row for one in trees for row in one.rows]),
    }
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
    sizes = whole_numbers(frame.get("trees"), "trees")
    if len(sizes) != len(nodes) or any(
        size > len(tokens_N) for size, (tokens_N, _) in zip(sizes, nodes, strict=True)
    ):
        raise ValueError(
            f"draft frame: trees must be at most as many rows as nodes for each of {len(nodes)}"
        )
    rows = LawRows.of(frame, sum(sizes), vocab_size)
    all_sources = frame.get("sources")
    if all_sources is not None:
        all_sources = whole_numbers(all_sources, "sources")
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
    rows.check_drawn([one.tree for one in trees], sizes)
    return trees


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
