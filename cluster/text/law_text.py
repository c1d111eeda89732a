"""Text for laws (`actors/engine/tables/trigram_laws.py`), which have no tokenizer: every token is one character."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.engine.tables.trigram_laws import VOCAB_SIZE

END_OF_LINE = VOCAB_SIZE - 1
"""Token id of the end of a line; those below are the printable ASCII characters, the space first."""

UNKNOWN = ord("?") - ord(" ")
"""Token id of every other character."""


class LawCodec:
    """A `TextCodec` of characters."""

    special_ids: frozenset[int] = frozenset()
    has_chat_template = True
    max_token_chars: int | None = 1

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        return [_token(char) for char in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return "".join("\n" if token == END_OF_LINE else chr(ord(" ") + token) for token in ids)

    def render_chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """Text of a conversation: a line for each turn."""
        return "".join(f"{role}: {content}\n" for role, content in turns) + "assistant: "


def _token(char: str) -> int:
    if char == "\n":
        return END_OF_LINE
    return ord(char) - ord(" ") if " " <= char <= "~" else UNKNOWN
