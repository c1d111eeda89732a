"""Drafting from the session's own text."""

from __future__ import annotations

import random

import pytest
from tests.actors.draft.bench import make_attach

from outrider.actors.draft.drafter import NoRoom
from outrider.actors.draft.prompt_lookup import OccurrenceIndex, PromptLookupDrafter
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import ROOT
from outrider.actors.speculation.options import Speculation


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


def attached(
    drafter: PromptLookupDrafter, tokens: list[int], max_depth: int = 3, max_tokens: int = 50
) -> DraftSession:
    attach = make_attach(
        tokens=tokens, speculation=Speculation(max_depth=max_depth), max_tokens=max_tokens
    )
    session = DraftSession(attach)
    drafter.attach(session)
    return session


def chain(session: DraftSession, node: int = ROOT) -> list[int]:
    """Tokens from a node down, along first children."""
    tokens = []
    while children := session.tree.children_of(node):
        node = children[0]
        tokens.append(session.tree.tokens[node])
    return tokens


def test_what_followed_before_is_proposed() -> None:
    """A chain as long as two target passes, and another continuation beside it."""
    drafter = PromptLookupDrafter(num_slots=2, max_ahead=64)
    session = attached(drafter, [1, 2, 30, 31, 32, 1, 2, 40, 41, 42, 43, 44, 45, 46, 1, 2])
    assert drafter.draft([session]).grown == [session]
    assert chain(session) == [40, 41, 42, 43, 44, 45]
    tree = session.tree
    assert [tree.tokens[node] for node in tree.top] == [40, 30]
    assert tree.estimates[tree.top[0]] > tree.estimates[tree.top[1]]
    assert not drafter.draft([session]).worked


def test_accepted_chains_go_on() -> None:
    """After a verdict along the chain, what is left of it stays and is continued."""
    drafter = PromptLookupDrafter(num_slots=2, max_ahead=64)
    text = [1, 2, *range(40, 60), 1, 2]
    session = attached(drafter, text)
    drafter.draft([session])
    session.tree.take_news(64)
    drafter.extend(session, (40, 41, 42))
    assert chain(session) == [43, 44, 45]
    assert session.tree.num_sent == 3
    drafter.draft([session])
    assert chain(session) == [43, 44, 45, 46, 47, 48]
    assert session.tree.num_sent == 3


def test_proposals_are_bounded() -> None:
    """By the tokens that remain and by the nodes allowed ahead."""
    drafter = PromptLookupDrafter(num_slots=2, max_ahead=4)
    text = [1, 2, *range(40, 60), 1, 2]
    short = attached(drafter, text, max_tokens=2)
    drafter.draft([short])
    assert chain(short) == [40, 41]
    long = attached(drafter, text, max_depth=30)
    drafter.draft([long])
    assert len(long.tree) == 4


def test_a_replaced_text_is_indexed_anew() -> None:
    """After a resync nothing of the wrong text is proposed."""
    drafter = PromptLookupDrafter(num_slots=1, max_ahead=64)
    session = attached(drafter, [1, 2, 77, 78, 1, 2])
    drafter.draft([session])
    drafter.rewrite(session, 2, (88, 89, 1, 2))
    drafter.draft([session])
    assert chain(session)[:2] == [88, 89]


def test_estimates_follow_the_matches() -> None:
    """Where copies go on as before, long matches become nearly certain."""
    drafter = PromptLookupDrafter(num_slots=1, max_ahead=64)
    session = attached(drafter, list(range(20)) * 2, max_tokens=10_000)
    for _ in range(60):
        drafter.draft([session])
        drafter.extend(session, [(session.tokens[-1] + 1) % 20])
    drafter.draft([session])
    assert session.tree.estimates[0] > 0.9


def test_every_slot_is_counted() -> None:
    """A session beyond the configured number is refused until another leaves."""
    drafter = PromptLookupDrafter(num_slots=1, max_ahead=8)
    session = attached(drafter, [1, 2])
    with pytest.raises(NoRoom, match="num_slots"):
        attached(drafter, [3, 4])
    drafter.detach(session)
    assert drafter.num_free_slots == 1
    attached(drafter, [3, 4])
