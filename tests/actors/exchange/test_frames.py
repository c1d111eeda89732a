"""Packed frames: what is sent is what is read, and bytes that are no frame are refused whole, by one error."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.exchange.frames import KINDS, VOCAB, Kind, array, plain, some_candidates

from outrider.actors.exchange import candidates, commits, verdicts
from outrider.actors.exchange.candidates import MAX_NODES, Candidates
from outrider.actors.exchange.frames import VERSION, BadFrame, clock_us, since_s
from outrider.actors.speculation.trees.ragged import starts_of

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each_kind
@given(st.data())
@settings(max_examples=60)
def test_what_is_sent_is_what_is_read(kind: Kind, data: st.DataObject) -> None:
    """Every field, also of empty frames, of ids that need four bytes, and of trees that need two-byte parents."""
    sent = data.draw(kind.some())
    frame = kind.encode(sent)
    assert plain(kind.decode(frame)) == plain(sent)


@each_kind
@given(st.data())
@settings(max_examples=60)
def test_a_frame_that_was_cut_or_lengthened_is_refused(kind: Kind, data: st.DataObject) -> None:
    """At any byte."""
    frame = kind.encode(data.draw(kind.some()))
    with pytest.raises(BadFrame):
        kind.decode(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(BadFrame):
        kind.decode(frame + data.draw(st.binary(min_size=1, max_size=9)))


@each_kind
@given(st.data())
@settings(max_examples=150)
def test_changed_bits_are_refused_or_read(kind: Kind, data: st.DataObject) -> None:
    """What is read of a damaged frame can be sent again; nothing but `BadFrame` is ever raised."""
    frame = bytearray(kind.encode(data.draw(kind.some())))
    for _ in range(data.draw(st.integers(1, 4))):
        # Heads are the most delicate part.
        bit = data.draw(st.integers(0, 8 * data.draw(st.sampled_from([24, len(frame)])) - 1))
        if bit < 8 * len(frame):
            frame[bit // 8] ^= 1 << bit % 8
    with suppress(BadFrame):
        found = kind.decode(bytes(frame))
        assert plain(kind.decode(kind.encode(found))) == plain(found)


@each_kind
@given(
    st.one_of(
        st.binary(max_size=80),
        st.lists(st.integers(0, 5), max_size=40).map(
            lambda numbers: b"".join(n.to_bytes(4, "little") for n in (VERSION, *numbers))
        ),
    )
)
@settings(max_examples=200)
def test_any_bytes_are_refused_or_read(kind: Kind, frame: bytes) -> None:
    """Noise, and noise that begins like a frame."""
    with suppress(BadFrame):
        kind.decode(frame)


@each_kind
@pytest.mark.parametrize("count", [2**20 + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("place", [1, 2])
def test_absurd_counts_are_refused_before_memory_is_taken(
    kind: Kind, count: int, place: int
) -> None:
    """The product of counts and sizes overflows nothing."""
    head = [VERSION, 1, 1, 2, 2]
    head[place] = count
    with pytest.raises(BadFrame, match="at most"):
        kind.decode(b"".join(n.to_bytes(4, "little") for n in head) + b"\0" * 200)


@each_kind
def test_another_version_is_refused(kind: Kind) -> None:
    """And named."""
    frame = (VERSION + 1).to_bytes(4, "little") + bytes(200)
    with pytest.raises(BadFrame, match=str(VERSION + 1)):
        kind.decode(frame)


def tree(tokens: list[int], parents: list[int], sizes: list[int]) -> Candidates:
    """A frame's content; nothing is checked."""
    count = len(sizes)
    return Candidates(
        handles_E=array([1] * count, np.uint64),
        lengths_E=array([3] * count),
        hashes_E=array([4] * count, np.uint64),
        numbers_E=array([1] * count),
        starts_E=starts_of(array(sizes)),
        tokens_N=array(tokens),
        parents_N=array(parents),
        estimates_N=array([9] * len(tokens), np.uint8),
    )


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (tree([1], [0], [1]), "earlier"),
        (tree([1, 2], [-1, 1], [2]), "earlier"),
        (tree([1, 2, 3], [-1, 2, -1], [3]), "earlier"),
        # Earlier in the frame, but of another session.
        (tree([1, 2], [-1, 0], [1, 1]), "earlier"),
        (tree([VOCAB], [-1], [1]), f"not among the target's {VOCAB}"),
        (tree([2**32 - 1], [-1], [1]), "not among the target's"),
        (tree([1, 2], [-1, -1], [1]), "but 2 nodes"),
        (tree([1, 2], [-1, -1], [1, 2]), "but 2 nodes"),
        (tree([1], [-1], []), "but 1 nodes"),
    ],
)
def test_malformed_trees_are_refused(content: Candidates, word: str) -> None:
    """Arrays that do not fit together never reach a pool."""
    with pytest.raises(BadFrame, match=word):
        candidates.decode(candidates.encode(content), VOCAB)


def test_many_sessions_with_all_that_their_credits_allow_are_read() -> None:
    """A drafter of a large target sends for all of its sessions at once."""
    sizes = [512] * 512
    full = tree([1] * sum(sizes), [-1] * sum(sizes), sizes)
    assert candidates.decode(candidates.encode(full), VOCAB).num_nodes == sum(sizes)


def test_a_frame_of_too_many_nodes_is_refused() -> None:
    """One more than the bound."""
    sizes = [MAX_NODES // 64] * 64
    full = tree([1] * MAX_NODES, [-1] * MAX_NODES, sizes)
    assert candidates.decode(candidates.encode(full), VOCAB).num_nodes == MAX_NODES
    more = tree([1] * (MAX_NODES + 1), [-1] * (MAX_NODES + 1), [*sizes, 1])
    with pytest.raises(BadFrame, match=f"at most {MAX_NODES}"):
        candidates.decode(candidates.encode(more), VOCAB)


@given(some_candidates(), st.data())
@settings(max_examples=50)
def test_some_entries_of_a_frame(found: Candidates, data: st.DataObject) -> None:
    """Are what a frame of only those would hold."""
    count = len(found.handles_E)
    chosen = [entry for entry in range(count) if data.draw(st.booleans())]
    part = found.only(array(chosen))
    assert part.handles_E.tolist() == [int(found.handles_E[entry]) for entry in chosen]
    for place, entry in enumerate(chosen):
        own = slice(int(part.starts_E[place]), int(part.starts_E[place + 1]))
        whole = slice(int(found.starts_E[entry]), int(found.starts_E[entry + 1]))
        assert part.tokens_N[own].tolist() == found.tokens_N[whole].tolist()
        assert part.parents_N[own].tolist() == found.parents_N[whole].tolist()
        assert part.estimates_N[own].tolist() == found.estimates_N[whole].tolist()


def verdict(*, length: int, tokens: list[int], roots: list[int]) -> verdicts.Verdicts:
    """One session's."""
    return verdicts.Verdicts(
        handles_E=array([1], np.uint64),
        epochs_E=array([1]),
        lengths_E=array([length]),
        hashes_E=array([7], np.uint64),
        credits_E=array([100_000]),
        seen_E=array([0]),
        starving_E=array([1], np.bool_),
        starts_E=array([0, len(tokens)]),
        tokens_T=array(tokens),
        root_starts_E=array([0, len(roots)]),
        roots_T=array(roots),
    )


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (verdict(length=1, tokens=[1, 2], roots=[]), "more tokens than its text"),
        (verdict(length=9, tokens=[verdicts.MAX_TOKEN], roots=[]), "token id"),
        (verdict(length=9, tokens=[1], roots=[verdicts.MAX_TOKEN]), "token id"),
    ],
)
def test_verdicts_that_cannot_be_are_refused(content: verdicts.Verdicts, word: str) -> None:
    """A drafter takes nothing of them."""
    with pytest.raises(BadFrame, match=word):
        verdicts.decode(verdicts.encode(content))


def test_what_does_not_fit_the_wire_is_clipped() -> None:
    """Credits, times and values that are out of range come out at its end."""
    content = verdict(length=9, tokens=[1], roots=[])
    target = verdicts.TargetActivity(pass_s=1e9, free_s=-1.0, wait_s=0.5, floor=7.0)
    found = verdicts.decode(
        verdicts.encode(
            verdicts.Verdicts(
                target=target,
                **{
                    name: getattr(content, name)
                    for name in verdicts.Verdicts.__dataclass_fields__
                    if name not in ("target", "num_bytes")
                },
            )
        )
    )
    assert found.credits_E.tolist() == [65_535]
    assert found.target.pass_s == pytest.approx(4294.967295)
    assert (found.target.free_s, found.target.wait_s, found.target.floor) == (0.0, 0.5, 1.0)


def test_commits_whose_counts_disagree_are_refused() -> None:
    """Tokens that belong to nobody."""
    content = commits.Commits(
        sessions_E=array([1], np.uint64),
        epochs_E=array([1]),
        starts_E=array([0, 1]),
        tokens_T=array([1, 2]),
        origins_T=array([-1, -1]),
    )
    with pytest.raises(BadFrame, match="not as many"):
        commits.decode(commits.encode(content))


@given(st.floats(0.0, 1e7), st.floats(-1000.0, 1000.0))
def test_a_clock_that_begins_anew_tells_how_long_ago(shown: float, since: float) -> None:
    """To the microsecond, over any number of hours, also where it is ahead."""
    assert since_s(clock_us(shown), shown + since) == pytest.approx(since, abs=3e-6)
