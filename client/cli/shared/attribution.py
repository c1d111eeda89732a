"""Which token each piece of streamed text came from. Pure.

The service sends text by chunk and tokens by id; text may lag behind its tokens, while a character or a possible stop
string is incomplete. Given what each token is on its own, the text is laid along the tokens. Invariant: the pieces that
come out, joined, are the text that went in, whatever the tokens are thought to be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from outrider.client.messages.results import TextChunk, Token

_BROKEN = "\N{REPLACEMENT CHARACTER}"
"""Stands for the bytes of a token that holds only part of a character."""


class Attribution:
    """Lays the text of one sequence along its tokens."""

    def __init__(self, token_text: Callable[[int], str]) -> None:
        """Args:
        token_text: What a token is on its own; approximate is enough.
        """
        self._token_text = token_text
        self._waiting: deque[Token] = deque()
        self._last: Token | None = None

    def feed(self, chunk: TextChunk) -> Iterator[tuple[str, Token | None]]:
        """The pieces of a chunk's text, each with the token it came from."""
        self._waiting.extend(chunk.tokens)
        text = chunk.text
        while text:
            if not self._waiting:
                yield text, self._last
                return
            length = self._length(text)
            token = self._waiting.popleft()
            self._last = token
            if length:
                yield text[:length], token
                text = text[length:]

    def _length(self, text: str) -> int:
        """How much of the text the first waiting token covers."""
        own = self._own(0)
        if own.endswith(_BROKEN):
            # The token ends amid a character, which a later token completes.
            whole = own.strip(_BROKEN)
            if whole or self._own(1).startswith(_BROKEN):
                return len(whole) if text.startswith(whole) else 0
            return self._up_to_next(text)
        if own.startswith(_BROKEN):
            rest = text.find(own.lstrip(_BROKEN))
            return rest + len(own.lstrip(_BROKEN)) if rest >= 0 else min(len(text), len(own))
        if text.startswith(own):
            return len(own)
        if text.startswith(" " + own):
            return len(own) + 1  # tokenizers that mark word starts drop the space of a lone token
        return len(text) if len(self._waiting) == 1 else min(len(text), len(own))

    def _own(self, position: int) -> str:
        """What a waiting token is on its own; empty beyond the last."""
        if position >= len(self._waiting):
            return ""
        return self._token_text(self._waiting[position].id)

    def _up_to_next(self, text: str) -> int:
        """How much of the text comes before that of the next waiting token."""
        following = self._own(1)
        end = text.find(following, 1) if following else -1
        return end if end > 0 else len(text)
