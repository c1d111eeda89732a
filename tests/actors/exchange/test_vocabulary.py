"""Which vocabularies fit together."""

from __future__ import annotations

import pytest

from outrider.actors.exchange.vocabulary import Vocabulary, difference


def test_one_tokenizer_fits_at_any_width() -> None:
    """Checkpoints of one tokenizer are padded to different widths."""
    target = Vocabulary(size=152_064, tokenizer="abc")
    assert not difference(Vocabulary(size=151_936, tokenizer="abc"), target, target_name="t")


@pytest.mark.parametrize("target", [Vocabulary(size=7, tokenizer="abc"), Vocabulary(size=9)])
def test_a_drafter_that_states_nothing_fits_everywhere(target: Vocabulary) -> None:
    """It works on any token ids."""
    assert not difference(Vocabulary(), target, target_name="t")


def test_another_tokenizer_is_told_as_such() -> None:
    """Also when the widths are equal."""
    told = difference(
        Vocabulary(size=8, tokenizer="abd"), Vocabulary(size=8, tokenizer="abc"), target_name="t"
    )
    assert told.startswith("its tokenizer (abd) is not that of 't' (abc)")


@pytest.mark.parametrize(
    ("drafter", "target", "silent"),
    [
        (Vocabulary(size=7), Vocabulary(size=8, tokenizer="abc"), "it has no tokenizer"),
        (Vocabulary(size=7, tokenizer="abc"), Vocabulary(size=8), "'t' has no tokenizer"),
    ],
)
def test_without_tokenizers_the_widths_decide(
    drafter: Vocabulary, target: Vocabulary, silent: str
) -> None:
    """The message says whose tokenizer is missing."""
    told = difference(drafter, target, target_name="t")
    assert "it has 7 token ids, 't' has 8" in told
    assert silent in told
