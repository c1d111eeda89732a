"""Drafting from the session's own text."""

from __future__ import annotations

import random

import pytest
from tests.actors.draft.bench import Bench, Verdict, View, frame_of, make_attach

from outrider.actors.draft.methods.prompt_lookup import LookupOptions, OccurrenceIndex, priors
from outrider.actors.draft.state.draft_events import Resynced, SessionKey
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.text.text_drafter import TextDrafter
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees import base_hash


def indexed(tokens: list[int]) -> list[tuple[int, int]]:
    """Matches of a text that was indexed at once."""
    index = OccurrenceIndex()
    index.extend(tokens)
    return index.matches(tokens)


def slow_matches(tokens: list[int]) -> list[tuple[int, int]]:
    """The definition, by searching."""
    found: list[tuple[int, int]] = []
    seen: set[int] = set()
    for size in range(min(4, len(tokens)), 0, -1):
        if size == 1 and found:
            break
        ends = [f for f in range(size, len(tokens)) if tokens[f - size : f] == tokens[-size:]]
        for follow in reversed(ends[-4:]):
            if tokens[follow] not in seen and len(found) < 2:
                seen.add(tokens[follow])
                found.append((size, follow))
    return found


def test_the_longest_and_most_recent_match_comes_first() -> None:
    """Two tokens match better than one, later occurrences better than earlier ones; the end itself is no match."""
    assert indexed([1, 2, 7, 9, 2, 8, 1, 2]) == [(2, 2)]
    assert indexed([1, 2, 7, 1, 2, 8, 1, 2]) == [(2, 5), (2, 2)]
    assert indexed([2, 7, 3, 2]) == [(1, 1)]
    assert indexed([1, 2, 3]) == []
    assert indexed([1]) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_growing_index_is_that_of_the_whole_text(seed: int) -> None:
    """Indexing token by token, in lumps or at once finds the same as searching."""
    generator = random.Random(seed)
    tokens: list[int] = []
    index = OccurrenceIndex()
    for _ in range(80):
        tokens += [generator.randint(0, 4) for _ in range(generator.randint(1, 5))]
        index.extend(tokens)
        assert index.matches(tokens) == indexed(tokens) == slow_matches(tokens)


class LookupBench(Bench):
    """A worker without a model."""

    def __init__(self, *, num_slots: int = 2, max_ahead: int = 64) -> None:
        sessions = DraftSessions(num_slots, max_ahead)
        super().__init__(
            sessions,
            TextDrafter(
                sessions,
                new_proposer=OccurrenceIndex,
                priors=priors(LookupOptions()),
                max_ahead=max_ahead,
            ),
            max_ahead=max_ahead,
        )

    def attach(
        self, tokens: list[int], *, handle: int = 7, max_depth: int = 3, max_tokens: int = 50
    ) -> SessionKey:
        attach = make_attach(
            handle=handle,
            tokens=tokens,
            speculation=Speculation(max_depth=max_depth),
            max_tokens=max_tokens,
        )
        self.worker.post(attach)
        self.settle()
        return attach.key

    def commit(self, key: SessionKey, tokens: tuple[int, ...]) -> None:
        text = [*self.text(key), *tokens]
        verdict = Verdict(
            handle=key.handle,
            epoch=1,
            length=len(text),
            hash=base_hash.extend_all(base_hash.EMPTY, text),
            tokens=tokens,
            credits=64,
        )
        self.worker.core.take(frame_of([verdict]), self.now)


def chain(tree: View, node: int = -1) -> list[int]:
    """Tokens from a node down, along first children."""
    tokens = []
    while children := tree.children(node):
        node = children[0]
        tokens.append(tree.tokens[node])
    return tokens


TEXT = [1, 2, *range(40, 60), 1, 2]


def test_what_followed_before_is_proposed() -> None:
    """A chain as long as two target passes, and another continuation beside it."""
    bench = LookupBench()
    key = bench.attach([1, 2, 30, 31, 32, 1, 2, 40, 41, 42, 43, 44, 45, 46, 1, 2])
    tree = bench.tree(key)
    assert chain(tree) == [40, 41, 42, 43, 44, 45]
    first, second = tree.children(-1)
    assert (tree.tokens[first], tree.tokens[second]) == (40, 30)
    assert tree.estimates[first] > tree.estimates[second]


def test_accepted_chains_go_on() -> None:
    """After a verdict along the chain, what is left of it stays and is continued; what was sent is not sent again."""
    bench = LookupBench()
    key = bench.attach(TEXT)
    bench.take()
    bench.commit(key, (40, 41, 42))
    assert chain(bench.tree(key)) == [43, 44, 45]
    assert bench.num_sent(key) == 3
    bench.settle()
    assert chain(bench.tree(key)) == [43, 44, 45, 46, 47, 48]
    [news] = bench.take_news()
    assert news.tokens[-3:] == (46, 47, 48)


def test_proposals_are_bounded() -> None:
    """By the tokens that remain and by the nodes allowed ahead."""
    bench = LookupBench(max_ahead=4)
    assert chain(bench.tree(bench.attach(TEXT, handle=1, max_tokens=2))) == [40, 41]
    assert len(bench.tree(bench.attach(TEXT, handle=2, max_depth=30)).tokens) == 4


def test_a_replaced_text_is_indexed_anew() -> None:
    """After a resync nothing of the wrong text is proposed."""
    bench = LookupBench()
    key = bench.attach([1, 2, 77, 78, 1, 2])
    text = [1, 2, 88, 89, 1, 2]
    bench.worker.post(
        Resynced(
            key=key,
            epoch=1,
            length=len(text),
            hash=base_hash.extend_all(base_hash.EMPTY, text),
            tokens=tuple(text),
            credits=64,
        )
    )
    bench.settle()
    assert chain(bench.tree(key))[:2] == [88, 89]


def test_estimates_follow_the_matches() -> None:
    """Where copies go on as before, long matches become nearly certain."""
    bench = LookupBench()
    key = bench.attach(list(range(20)) * 2, max_tokens=10_000)
    for _ in range(60):
        bench.commit(key, ((bench.text(key)[-1] + 1) % 20,))
        bench.settle()
    assert bench.tree(key).estimates[0] > 0.9


def test_every_slot_is_counted() -> None:
    """A session beyond the configured number is refused until another leaves."""
    bench = LookupBench(num_slots=1)
    bench.attach([1, 2], handle=1)
    bench.worker.post(make_attach(handle=2))
    bench.settle()
    [refused] = bench.take_refused()
    assert "num_slots" in refused.message
    assert bench.worker.num_free_slots == 0
