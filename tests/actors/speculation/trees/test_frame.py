"""What is decoded is what was sampled from, bit for bit; anything else is refused."""

from __future__ import annotations

import zlib

import msgpack  # type: ignore[import-untyped]  # no stubs
import numpy as np
import pytest

from outrider.actors.frozen.law_frame import FrozenTree, decode, encode
from outrider.actors.frozen.sparse_rows import MAX_KEPT, SparseRow, draw_siblings, freeze
from outrider.actors.speculation.sampling.random_acts import UniformDecisions
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import parse

VOCAB = 32000


def frozen(replacement: Replacement, *, seed: int = 0, keep: int = 64) -> FrozenTree:
    """A tree 4,2,2 drawn from random rows over a large vocabulary."""
    rng = np.random.default_rng(seed)
    shape = parse("4,2,2")
    rows = tuple(
        freeze(rng.dirichlet(np.full(VOCAB, 0.01)), 0.0, keep) for _ in range(shape.num_internal)
    )
    sources = sources_by_parent(shape.parents_N)
    tokens: list[int] = []
    for row, count in zip(rows, (4, *[2] * 12), strict=True):
        tokens += draw_siblings(row, count, replacement, UniformDecisions(rng.random(8)))
    tree = DraftTree(
        tokens_N=tuple(tokens),
        parents_N=shape.parents_N,
        sources_N=sources,
        replacement=replacement,
    )
    return FrozenTree(tree=tree, rows=rows)


def through_the_wire(sent: FrozenTree) -> FrozenTree:
    """Encode and decode."""
    (got,) = all_through_the_wire([sent])
    return got


def all_through_the_wire(sent: list[FrozenTree]) -> list[FrozenTree]:
    """Several in one frame."""
    nodes = [(one.tree.tokens_N, one.tree.parents_N) for one in sent]
    return decode(encode(sent), nodes, VOCAB)


@pytest.mark.parametrize("replacement", Replacement)
def test_decoded_rows_are_bit_equal(replacement: Replacement) -> None:
    """Ids, weights, probabilities, draw order, mode and sources."""
    sent = frozen(replacement)
    check_equal(sent, through_the_wire(sent))


def check_equal(sent: FrozenTree, got: FrozenTree) -> None:
    """The same trees, to the last bit."""
    assert got.tree == sent.tree
    for row, other in zip(sent.rows, got.rows, strict=True):
        assert row.ids_K.tobytes() == other.ids_K.tobytes()
        assert row.weights_K.tobytes() == other.weights_K.tobytes()
        assert row.rest == other.rest
        assert row.dense(VOCAB).tobytes() == other.dense(VOCAB).tobytes()


def test_trees_of_one_frame_are_bit_equal() -> None:
    """Trees of both kinds, one without nodes and one without unlisted tokens among them, in whatever order."""
    few = freeze(np.array([0.5, 0.0, 0.5]), rest_share=0.0)
    small = FrozenTree(
        tree=DraftTree(tokens_N=(2, 0, 2), parents_N=(-1, 0, 1), sources_N=(0, 1, 0)),
        rows=(few, few),
    )
    empty = FrozenTree(tree=DraftTree(tokens_N=(), parents_N=()), rows=())
    trees = [
        frozen(Replacement.WITHOUT),
        empty,
        frozen(Replacement.WITH, seed=1),
        small,
        frozen(Replacement.WITH, seed=2, keep=3),
    ]
    for order in (trees, trees[::-1]):
        for sent, got in zip(order, all_through_the_wire(order), strict=True):
            check_equal(sent, got)


def test_rows_of_two_vocabularies_do_not_travel_together() -> None:
    """The frame says once how many token ids there are."""
    trees = []
    for size in (100, 101):
        row = freeze(np.random.default_rng(0).dirichlet(np.full(size, 0.3)), 0.05)
        assert row.rest
        tree = DraftTree(tokens_N=(int(row.ids_K[0]),), parents_N=(-1,))
        trees.append(FrozenTree(tree=tree, rows=(row,)))
    with pytest.raises(ValueError, match="100 and 101 token ids"):
        encode(trees)


def test_a_token_takes_less_than_three_bytes() -> None:
    """Of a vocabulary of 32,000, with 64 tokens a row: 13 * 384 bytes would be six each."""
    sent = frozen(Replacement.WITHOUT)
    num_tokens = sum(len(row.ids_K) for row in sent.rows)
    assert num_tokens == 13 * 64
    assert len(encode([sent])) < 3 * num_tokens


def test_weights_that_are_not_levels_do_not_travel() -> None:
    """What cannot be told exactly must not be told at all."""
    row = SparseRow(ids_K=np.array([3], np.uint32), weights_K=np.array([0.3]))
    tree = DraftTree(tokens_N=(3,), parents_N=(-1,), sources_N=(0,))
    with pytest.raises(ValueError, match="make it with `freeze`"):
        encode([FrozenTree(tree=tree, rows=(row,))])


def test_sources_of_several_drafters_travel() -> None:
    """Siblings with rows of their own."""
    rows = frozen(Replacement.WITH).rows[:2]
    tokens = tuple(int(row.ids_K[0]) for row in rows)
    tree = DraftTree(tokens_N=tokens, parents_N=(-1, -1), sources_N=(0, 1))
    assert through_the_wire(FrozenTree(tree=tree, rows=rows)).tree.sources_N == (0, 1)


def test_an_empty_tree_travels() -> None:
    """No nodes, no rows."""
    sent = FrozenTree(tree=DraftTree(tokens_N=(), parents_N=()), rows=())
    assert through_the_wire(sent).tree.num_nodes == 0


def deflated(data: bytes) -> bytes:
    """Raw, as in a frame."""
    deflating = zlib.compressobj(wbits=-15)
    return deflating.compress(data) + deflating.flush()


def changed(**entries: object) -> bytes:
    """A frame of one row (tokens 3 and 5) with some entries replaced; None removes."""
    frame: dict[str, object] = {
        "version": 4,
        "replacements": bytes([1]),
        "trees": [1],
        "counts": [2],
        "ids": deflated(bytes([3, 1])),
        "levels": deflated(bytes([0, 4])),
    }
    frame.update(entries)
    packed: bytes = msgpack.packb({key: value for key, value in frame.items() if value is not None})
    return packed


BAD = [
    (b"", "not msgpack"),
    (b"\xc1", "not msgpack"),
    (msgpack.packb([1]), "version is None"),
    (changed(version=1), "version is 1"),
    (changed(replacements=bytes([2])), "replacements are .* each 0 .with. or 1"),
    (changed(replacements=[1]), "replacements are"),
    (changed(replacements=bytes(2)), "they must be 1 bytes"),
    (changed(trees=None), "trees must be"),
    (changed(trees=[-1]), "trees must be"),
    (changed(trees=[1, 1]), "trees must be at most as many rows as nodes for each of 1"),
    (changed(trees=[3]), "trees must be at most as many rows as nodes"),
    (changed(counts=[2, -1]), "counts must be"),
    (changed(counts=None), "counts must be"),
    (changed(counts=[True, 1]), "counts must be"),
    (changed(counts=[2, 0]), "counts must be 1 to"),
    (changed(counts=[MAX_KEPT + 1]), "counts must be 1 to"),
    (changed(counts=[1, 1]), "for each of 1 rows"),
    (changed(counts=[3]), "ids: 2 bytes that are not 3 gaps"),
    (changed(ids="text"), "ids must be bytes"),
    (changed(ids=b"\xff\xff"), "ids cannot be inflated"),
    (changed(ids=deflated(b"")), "ids: 0 bytes that are not 2 gaps"),
    (changed(ids=deflated(bytes(10**6))), "ids must inflate to at most 10 bytes"),
    (changed(ids=deflated(bytes([3, 1])) + b"x"), "ids must inflate"),
    (changed(ids=deflated(bytes([3, 1]))[:-1]), "ids must inflate"),
    (changed(ids=deflated(bytes([3, 129]))), "not 2 gaps"),
    (changed(ids=deflated(bytes([3, 6]))), "id 10; the vocabulary has ids below 10"),
    (changed(levels=None), "levels must be bytes"),
    (changed(levels=deflated(bytes([0]))), "levels must be 2 bytes below 128"),
    (changed(levels=deflated(bytes([0, 128]))), "levels must be 2 bytes below 128"),
    (changed(levels=deflated(bytes(3))), "levels must inflate to at most 2"),
    (changed(rest=bytes([8])), "rest is for None token ids; there are 10"),
    (changed(rest=bytes([8]), vocab_size=11), "rest is for 11 token ids; there are 10"),
    (changed(rest=bytes([8]), vocab_size=1), "rest is for 1 token ids; there are 10"),
    (changed(rest=bytes([8]), vocab_size=5), "a token is not below vocab_size, 5"),
    (changed(rest=bytes(2), vocab_size=10), "rest must be 1 bytes"),
    (changed(rest=[8], vocab_size=10), "rest must be 1 bytes"),
    (changed(rest=bytes([128]), vocab_size=10), "rest must be levels below 128, or 255"),
    (changed(sources=[0, 1]), "row 1, and there are 1"),
    (changed(sources=[0]), "sources are for 1 nodes"),
    (changed(sources=[0, -1]), "sources must be"),
    (changed(sources="ab"), "sources must be"),
]


@pytest.mark.parametrize(("data", "message"), BAD)
def test_damaged_frames_are_refused(data: bytes, message: str) -> None:
    """Whatever arrives, it is an error that names the field, or a frame that can be verified against."""
    with pytest.raises(ValueError, match=message):
        decode(data, [((3, 5), (-1, -1))], 10)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [((3, 4), "node 1 holds token 4"), ((3, 3), "without replacement differ")],
)
def test_tokens_that_cannot_have_been_drawn_are_refused(
    tokens: tuple[int, ...], message: str
) -> None:
    """A drafter that lies this openly is told so."""
    with pytest.raises(ValueError, match=message):
        decode(changed(), [(tokens, (-1, -1))], 10)


def test_cut_frames_are_refused() -> None:
    """At every length."""
    data = changed()
    for length in range(len(data)):
        with pytest.raises(ValueError, match="draft frame"):
            decode(data[:length], [((3, 5), (-1, -1))], 10)


def test_unlisted_tokens_can_have_been_drawn() -> None:
    """If the row gives them a weight, and they are token ids."""
    data = changed(rest=bytes([8]), vocab_size=10)
    (got,) = decode(data, [((9, 5), (-1, -1))], 10)
    assert got.rows[0].prob(9) == got.rows[0].rest / got.rows[0].total
    with pytest.raises(ValueError, match="node 0 holds token 10"):
        decode(data, [((10, 5), (-1, -1))], 10)


def test_a_rest_whose_sum_would_be_rounded_is_refused() -> None:
    """The two sides might add it up differently."""
    with pytest.raises(ValueError, match="rest is too great for 99998 tokens"):
        decode(
            changed(rest=bytes([0]), vocab_size=100_000),
            [((3, 5), (-1, -1))],
            100_000,
        )
