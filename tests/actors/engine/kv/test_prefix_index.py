"""Finding the longest common beginning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.engine.kv.prefix_index import PrefixIndex, common_length, pack

BIG = 2**32 - 1

TEXTS = st.lists(st.sampled_from([0, 1, 256, BIG]), max_size=9)
"""Few token ids, so that beginnings are often equal; some differ in one byte of a token only."""


def common(first: list[int], second: list[int]) -> int:
    """Tokens in common at the beginning, one by one."""
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return length


@given(TEXTS, TEXTS, st.data())
def test_common_length_is_counted_in_tokens(
    first: list[int], second: list[int], data: st.DataObject
) -> None:
    """What is known and the limit save work and change nothing else."""
    length = common(first, second)
    known, limit = data.draw(st.integers(0, length)), data.draw(st.integers(0, 9))
    assert length == common_length(pack(first), pack(second))
    assert length == common_length(pack(first), pack(second), known=known)
    assert min(length, limit) == common_length(pack(first), pack(second), limit=limit)


@given(st.lists(TEXTS, min_size=1, max_size=6), TEXTS, st.data())
def test_the_longest_beginning_is_found(
    texts: list[list[int]], text: list[int], data: st.DataObject
) -> None:
    """As by comparing each; of equal ones the first that was asked for, and no more than the rows that are there."""
    index = PrefixIndex()
    for slot, theirs in enumerate(texts):
        index.put(slot, pack(theirs))
    rows = [data.draw(st.integers(0, len(theirs))) for theirs in texts]
    slots = data.draw(st.permutations(range(len(texts))))
    lengths = [common(theirs, text) for theirs in texts]
    there = [min(length, count) for length, count in zip(lengths, rows, strict=True)]
    for found, expected in (
        (index.longest(pack(text), slots), lengths),
        (index.longest(pack(text), slots, rows.__getitem__), there),
    ):
        first = next(slot for slot in slots if expected[slot] == max(expected))
        assert found == ((first, max(expected)) if max(expected) else (-1, 0))


def test_texts_are_replaced_cut_and_forgotten() -> None:
    """An index tells what was put last."""
    index = PrefixIndex()
    index.put(1, pack([5, 6, 7]))
    index.put(2, pack([5]))
    assert (index.length(1), index.within(2, 1), index.within(1, 2)) == (3, True, False)
    index.cut(1, 1)
    assert (index.text(1), index.within(1, 2)) == (pack([5]), True)
    index.remove(1)
    index.remove(1)
    assert index.longest(pack([5, 6]), [2]) == (2, 1)
