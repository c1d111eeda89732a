"""Incremental detokenisation: token ids in, text that is certain out. Pure but for the decoder it is given.

Invariants: the pieces, concatenated, are the decoder's text of all the tokens, or what they add to the text that they go
on from, however they were cut; a character is never split: bytes that may still become one are held back, and are U+FFFD
only at the end. What has come out after some tokens depends on those and on the text before them only, so that a resumed
stream goes on exactly where the broken one ended.

Only a window of tokens is decoded each time: the piece before the last one as context (decoders treat the first token
of a text differently), the last one, and the new tokens. The cost of a token does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

REPLACEMENT = "\ufffd"
"""What decoders make of bytes that are not, or not yet, a character."""

MAX_WINDOW = 24
"""Tokens of a window that ends in the middle of a character before a safe cut inside it is looked for. A character
is at most 4 bytes, so only garbage gets here; without a cut a long run of it would cost quadratic time."""

BEFORE = 8
"""Tokens of what the text goes on from that are its first context: more than one character or word takes."""

CUT_BACK = 8
"""Tokens left after such a cut: more than the 4 that one character can take."""


class Detokeniser:
    """The text of one growing sequence of tokens."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        special_ids: frozenset[int] = frozenset(),
        *,
        before: Sequence[int] = (),
    ) -> None:
        """Takes the decoder.

        Args:
            decode: Text of some token ids, special tokens included.
            special_ids: Token ids that have no text.
            before: Tokens that the text goes on from; its first word keeps its space then. None: the text begins by itself.
        """
        self._decode = decode
        self._special_ids = special_ids
        self._window: list[int] = []
        self._context_text = ""
        self._num_context = 0
        self._num_emitted = 0
        plain = (token for token in reversed(before) if token not in special_ids)
        context = list(islice(plain, BEFORE))[::-1]
        text = decode(context) if context else ""
        # In the middle of a character what follows would change the context.
        if text and not text.endswith(REPLACEMENT):
            self._window, self._num_context, self._context_text = context, len(context), text

    def feed(self, ids: Iterable[int]) -> str:
        """Takes in more tokens and returns the text that became certain."""
        special_ids = self._special_ids
        fresh = [token for token in ids if token not in special_ids]
        if not fresh:
            return ""
        window = self._window
        window.extend(fresh)
        text = self._decode(window)
        start = len(self._context_text) + self._num_emitted
        if not text.endswith(REPLACEMENT):
            self._advance(len(window))
            return text[start:]
        certain = text[start : len(text) - 1]
        self._num_emitted += len(certain)
        if len(window) - self._num_context > MAX_WINDOW:
            self._cut(text)
        return certain

    def flush(self) -> str:
        """The text still held back, at the end of the output."""
        text = self._decode(self._window)
        rest = text[len(self._context_text) + self._num_emitted :]
        self._num_emitted += len(rest)
        return rest

    def _advance(self, end: int) -> None:
        """Makes the tokens before `end`, whose text is all out, the context of what follows.

        Tokens without a text of their own, as ids that the tokenizer lacks, are not enough: behind them alone what follows
        would be decoded as the first token of a text. The context grows by them, and not without end.
        """
        window, num_context = self._window, self._num_context
        text, is_long = self._decode(window[num_context:end]), end > MAX_WINDOW
        if text or (is_long and not self._context_text):
            del window[:num_context]
            self._num_context, self._context_text = end - num_context, text
        elif is_long:
            del window[num_context:end]
        else:
            self._num_context, self._context_text = end, self._decode(window[:end])
        self._num_emitted = 0

    def _cut(self, text: str) -> None:
        """Moves the context into a window that does not end, where what follows cannot change what is before.

        If the window's text is that of its two parts, and the second part has more than the held character, then
        nothing that comes later can reach over the cut.
        """
        cut = len(self._window) - CUT_BACK
        before, after = self._decode(self._window[:cut]), self._decode(self._window[cut:])
        if len(after) < 2 or before + after != text:
            return
        emitted = len(self._context_text) + self._num_emitted
        self._window = self._window[cut - 1 :]
        self._num_context = 1
        self._context_text = self._decode(self._window[:1])
        if self._decode(self._window) != self._context_text + after:
            self._window, self._num_context, self._context_text = self._window[1:], 0, ""
        self._num_emitted = emitted - len(before)
