"""Prompts: text, conversations and token ids."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, out_of_range
from outrider.v1 import generation_pb2

MAX_MESSAGES = 1024
"""Turns of a conversation, at most: far above any real one, and bounds the work of a template."""

MAX_TOKENIZED_CHARS = 2**20
"""Characters of text that `Tokenize` takes, at most: they keep a processor busy for about a second."""

MAX_DETOKENIZED_IDS = 2**20
"""Token ids that `Detokenize` takes, at most."""


def check_text(text: str, limits: Limits, field: str = "text") -> None:
    """Refuses text that need not be tokenised to know that it cannot be taken."""
    if not limits.has_tokenizer:
        raise invalid(
            field, "cannot be tokenised: this service has no tokenizer; send the prompt as tokens"
        )
    if limits.max_token_chars and len(text) > limits.max_token_chars * limits.max_context:
        least = -(-len(text) // limits.max_token_chars)
        raise out_of_range(
            field,
            f"is at least {least} tokens long ({len(text)} characters), but the context of {limits.model!r} "
            f"holds {limits.max_context}; shorten it",
        )


def check_length_of_text(text: str) -> None:
    """Refuses text that would take long to tokenise, where no context bounds it."""
    if len(text) > MAX_TOKENIZED_CHARS:
        raise invalid(
            "text", f"has {len(text)} characters; at most {MAX_TOKENIZED_CHARS} are taken; cut it"
        )


def check_chat(chat: generation_pb2.ChatMessages, limits: Limits) -> list[tuple[str, str]]:
    """The turns of a conversation, or a refusal."""
    check_text("".join(message.content for message in chat.messages), limits, "chat.messages")
    if not limits.has_chat_template:
        raise invalid(
            "chat", f"needs a chat template, and {limits.model!r} has none; send the prompt as text"
        )
    if not 1 <= len(chat.messages) <= MAX_MESSAGES:
        raise invalid(
            "chat.messages", f"must hold 1 to {MAX_MESSAGES} turns, got {len(chat.messages)}"
        )
    for index, message in enumerate(chat.messages):
        if not message.role:
            raise invalid(
                f"chat.messages[{index}].role",
                "is empty; name who speaks, usually system, user or assistant",
            )
    return [(message.role, message.content) for message in chat.messages]


def check_token_ids(ids: Sequence[int], limits: Limits, field: str) -> None:
    """Refuses ids that the model does not have."""
    if ids and max(ids) >= limits.vocab_size:
        index = next(index for index, token in enumerate(ids) if token >= limits.vocab_size)
        raise out_of_range(
            f"{field}[{index}]",
            f"is {ids[index]}, outside the vocabulary of {limits.model!r}: ids must be below "
            f"{limits.vocab_size}",
        )


def check_number_of_ids(ids: Sequence[int]) -> None:
    """Refuses ids that would take long to turn into text."""
    if len(ids) > MAX_DETOKENIZED_IDS:
        raise invalid(
            "ids", f"holds {len(ids)} tokens; at most {MAX_DETOKENIZED_IDS} are taken; cut it"
        )


def check_prompt(prompt: Sequence[int], limits: Limits, field: str) -> None:
    """Refuses a prompt that is empty, unknown to the model, or leaves no room for output."""
    if not prompt:
        raise invalid(field, "is empty: the prompt needs at least one token")
    if len(prompt) >= limits.max_context:
        raise out_of_range(
            field,
            f"is {len(prompt)} tokens long, but the context of {limits.model!r} holds {limits.max_context} "
            "with at least one of them output; shorten it",
        )
    check_token_ids(prompt, limits, field)
