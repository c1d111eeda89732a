"""Laying text along tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.client.cli.shared.attribution import Attribution
from outrider.client.messages.results import Origin, TextChunk, Token

PIECES = {1: "Hello", 2: " wor", 3: "ld", 4: "\ufffd", 5: "\ufffd", 6: "world", 7: "", 8: "a\ufffd"}


def laid(*chunks: tuple[str, tuple[int, ...]]) -> list[tuple[str, int | None]]:
    """The pieces of some chunks, with their tokens' ids."""
    attribution = Attribution(lambda token_id: PIECES[token_id])
    pieces = []
    for text, ids in chunks:
        tokens = tuple(Token(id=token_id, origin=Origin.TARGET) for token_id in ids)
        for piece, token in attribution.feed(TextChunk(index=0, text=text, tokens=tokens)):
            pieces.append((piece, token.id if token is not None else None))
    return pieces


def test_whole_pieces() -> None:
    """Text that is its tokens' own falls to each."""
    assert laid(("Hello world", (1, 2, 3))) == [("Hello", 1), (" wor", 2), ("ld", 3)]


def test_text_that_lags_behind_its_tokens() -> None:
    """Text held back is laid along the tokens that came before it."""
    assert laid(("", (1, 2)), ("Hello world", (3,))) == [("Hello", 1), (" wor", 2), ("ld", 3)]


def test_character_in_two_tokens() -> None:
    """A character falls to the token that completes it."""
    assert laid(("", (4,)), ("éld", (5, 3))) == [("é", 5), ("ld", 3)]
    assert laid(("a", (8,)), ("é", (5,))) == [("a", 8), ("é", 5)]


def test_word_start_that_a_lone_token_loses() -> None:
    """A space before a word belongs to the word."""
    assert laid(("Hello world", (1, 6))) == [("Hello", 1), (" world", 6)]


def test_token_without_text() -> None:
    """A special token that is left out of the text takes none of it."""
    assert laid(("Hello", (7, 1))) == [("Hello", 1)]


def test_text_without_tokens() -> None:
    """Text that no token is left for falls to the last one."""
    assert laid(("Hello", (1,)), ("!", ())) == [("Hello", 1), ("!", 1)]
    assert laid(("Hello", ())) == [("Hello", None)]


@given(st.lists(st.tuples(st.text(max_size=6), st.lists(st.sampled_from(sorted(PIECES))))))
def test_no_character_is_lost_or_added(chunks: list[tuple[str, list[int]]]) -> None:
    """However little the tokens fit, the pieces are the text."""
    pieces = laid(*((text, tuple(ids)) for text, ids in chunks))
    assert "".join(text for text, _ in chunks) == "".join(piece for piece, _ in pieces)
