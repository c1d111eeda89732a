"""Prompts: refused before any work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cluster.validation.cases import INVALID, LIMITS, RANGE, settle

from outrider.cluster.validation.prompt import (
    check_chat,
    check_prompt,
    check_text,
)
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import generation_pb2


def test_a_service_without_a_tokenizer_says_so() -> None:
    """Text, chat and stop strings are refused with a way out."""
    bare = replace(LIMITS, has_tokenizer=False, has_chat_template=False)
    chat = generation_pb2.ChatMessages(messages=[generation_pb2.ChatMessage(role="user")])
    for check in (
        lambda: check_text("x", bare),
        lambda: check_chat(chat, bare),
        lambda: settle(bare, sampling={"stop": ["x"]}),
    ):
        with pytest.raises(Refusal, match="tokenizer") as refused:
            check()
        assert refused.value.code is INVALID


def test_a_conversation_must_be_one() -> None:
    """A template is needed, turns, and a speaker for each."""
    no_template = replace(LIMITS, has_chat_template=False)
    turns = generation_pb2.ChatMessages(
        messages=[
            generation_pb2.ChatMessage(role="user", content="hi"),
            generation_pb2.ChatMessage(content="who says this?"),
        ]
    )
    with pytest.raises(Refusal, match="chat needs a chat template"):
        check_chat(turns, no_template)
    with pytest.raises(Refusal, match=r"chat\.messages\[1\]\.role is empty"):
        check_chat(turns, LIMITS)
    with pytest.raises(Refusal, match=r"chat\.messages must hold 1 to"):
        check_chat(generation_pb2.ChatMessages(), LIMITS)


def test_prompts_must_fit() -> None:
    """Empty, too long, and with an id that does not exist."""
    with pytest.raises(Refusal, match=r"tokens\.ids is empty"):
        check_prompt([], LIMITS, "tokens.ids")
    with pytest.raises(Refusal, match="50 tokens long, but the context of 'm' holds 50") as refused:
        check_prompt([1] * 50, LIMITS, "text")
    assert refused.value.code is RANGE
    with pytest.raises(Refusal, match=r"tokens\.ids\[1\] is 100, outside the vocabulary"):
        check_prompt([99, 100], LIMITS, "tokens.ids")
    check_prompt([1] * 49, LIMITS, "text")


def test_hopeless_text_is_refused_before_it_is_tokenised() -> None:
    """A token stands for so many characters at most, so length alone can tell."""
    with pytest.raises(Refusal, match="at least 51 tokens long") as refused:
        check_text("x" * 201, LIMITS)
    assert refused.value.code is RANGE
    check_text("x" * 200, LIMITS)
    check_text("x" * 201, replace(LIMITS, max_token_chars=None))
