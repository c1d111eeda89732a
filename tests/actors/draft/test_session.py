"""What messages of a target mean for a session."""

from __future__ import annotations

import pytest
from tests.actors.draft.bench import make_attach

from outrider.actors.draft.events import Resync, Verdict
from outrider.actors.draft.session import Ask, Broken, DraftSession, Extend, Rewrite, Stale
from outrider.actors.speculation import base_hash


def digest(tokens: list[int]) -> int:
    return base_hash.extend_all(base_hash.EMPTY, tokens)


def verdict(session: DraftSession, text: list[int], count: int) -> Verdict:
    """A verdict that committed the last tokens of a text."""
    return Verdict(
        key=session.key,
        epoch=1,
        length=len(text),
        hash=digest(text),
        tokens=tuple(text[len(text) - count :]),
        credits=8,
    )


def resync(session: DraftSession, text: list[int], count: int) -> Resync:
    """The last tokens of a text."""
    return Resync(
        key=session.key,
        epoch=1,
        length=len(text),
        hash=digest(text),
        tokens=tuple(text[len(text) - count :]),
        credits=8,
    )


@pytest.fixture
def session() -> DraftSession:
    return DraftSession(make_attach(tokens=[1, 2, 3]))


def test_a_verdict_that_continues_the_text_extends_it(session: DraftSession) -> None:
    """Base and hash follow the tokens."""
    step = session.judge_verdict(verdict(session, [1, 2, 3, 4, 5], 2))
    assert step == Extend(tokens=(4, 5))
    session.append(step.tokens)
    assert (session.length, session.hash) == (5, digest([1, 2, 3, 4, 5]))


def test_an_overlapping_verdict_extends_by_what_is_new(session: DraftSession) -> None:
    """A verdict whose first tokens came with a resync still counts."""
    assert session.judge_verdict(verdict(session, [1, 2, 3, 4], 3)) == Extend(tokens=(4,))


@pytest.mark.parametrize("text", [[1, 2], [1, 2, 3]])
def test_a_repeated_verdict_is_stale(session: DraftSession, text: list[int]) -> None:
    """What ends within the text says nothing new."""
    assert session.judge_verdict(verdict(session, text, 1)) == Stale()


def test_a_gap_asks_for_what_is_missing(session: DraftSession) -> None:
    """Tokens between our text and the verdict's are asked for."""
    assert session.judge_verdict(verdict(session, [1, 2, 3, 4, 5, 6], 2)) == Ask(length=3)


def test_another_text_asks_for_everything(session: DraftSession) -> None:
    """A hash that does not fit shows that our text is wrong somewhere."""
    assert session.judge_verdict(verdict(session, [9, 2, 3, 4], 1)) == Ask(length=0)
    assert session.judge_verdict(verdict(session, [9, 2, 3], 1)) == Ask(length=0)


def test_a_resync_continues_or_rewrites(session: DraftSession) -> None:
    """The tail extends; the whole text replaces what was wrong, also by something shorter."""
    assert session.judge_resync(resync(session, [1, 2, 3, 4], 1)) == Extend(tokens=(4,))
    assert session.judge_resync(resync(session, [1, 2, 3], 0)) == Stale()
    assert session.judge_resync(resync(session, [1, 9, 8, 7], 4)) == Rewrite(
        keep=1, tokens=(9, 8, 7)
    )
    assert session.judge_resync(resync(session, [1, 2], 2)) == Rewrite(keep=2, tokens=())
    session.replace(1, (9, 8, 7))
    assert (session.tokens, session.hash) == ([1, 9, 8, 7], digest([1, 9, 8, 7]))


def test_a_tail_that_does_not_fit_asks_for_everything(session: DraftSession) -> None:
    """A tail after a text that is not ours is no help."""
    assert session.judge_resync(resync(session, [1, 9, 3, 4], 1)) == Ask(length=0)
    assert session.judge_resync(resync(session, [1, 2, 3, 4, 5], 1)) == Ask(length=3)


def test_a_target_that_contradicts_itself_ends_the_session(session: DraftSession) -> None:
    """The whole text with another hash, or more tokens than there are, cannot be followed."""
    wrong = resync(session, [1, 2, 3, 4], 4)
    broken = Resync(
        key=wrong.key, epoch=1, length=4, hash=wrong.hash ^ 1, tokens=wrong.tokens, credits=8
    )
    assert isinstance(session.judge_resync(broken), Broken)
    more = Resync(key=wrong.key, epoch=1, length=1, hash=0, tokens=(1, 2), credits=8)
    assert isinstance(session.judge_resync(more), Broken)


def test_news_are_limited_by_credits(session: DraftSession) -> None:
    """The target's credits count before our own limit, once it has stated them."""
    session.tree.is_expanded = True
    for token in range(6):
        session.tree.add(-1, token, 0.1, (0,))
    session.credits = 2
    news = session.take_news(64)
    assert news is not None
    assert len(news.tree.tokens) == 2
    assert (news.length, news.hash) == (3, digest([1, 2, 3]))
    session.credits = None
    rest = session.take_news(5)
    assert rest is not None
    assert len(rest.tree.tokens) == 3
