"""Tokens that are single bytes (`<0xE6>`), which spell the characters that a vocabulary of SentencePiece lacks. Pure.

The decoder of such a tokenizer takes a run of them as a whole: as long as the last character is not complete, or if one byte is
not UTF-8, every byte of the run becomes U+FFFD, those of whole characters before it, too. What a stream has given out cannot be
taken back, so a run is read here as byte-level tokenizers read theirs: what is a character stays one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol


class Decoder(Protocol):
    """The part of `tokenizers.decoders.Decoder` that is used."""

    def decode(self, tokens: list[str]) -> str: ...


class NamedTokens(Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    decoder: Decoder | None

    def id_to_token(self, token: int) -> str | None: ...

    def token_to_id(self, name: str) -> int | None: ...


class ByteTokens:
    """The byte tokens of one tokenizer; none if it has no such."""

    def __init__(self, tokenizer: NamedTokens) -> None:
        """Finds them."""
        self._tokenizer = tokenizer
        self._decoder = tokenizer.decoder
        self._bytes: dict[int, int] = {}
        if self._decoder is None or self._decoder.decode([_name(ord("A"))]) != "A":
            return
        for byte in range(256):
            token = tokenizer.token_to_id(_name(byte))
            if token is not None:
                self._bytes[token] = byte

    def are_in(self, ids: Sequence[int]) -> bool:
        """Whether some of the tokens are bytes."""
        return not self._bytes.keys().isdisjoint(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens of which some are bytes."""
        assert self._decoder is not None, "without a decoder no token is a byte"
        return self._decoder.decode(list(self._names(ids)))

    def _names(self, ids: Sequence[int]) -> Iterator[str]:
        """What the decoder is given: each character of a run of bytes in place of its bytes."""
        known = [token for token in ids if self._tokenizer.id_to_token(token) is not None]
        for is_byte, run in groupby(known, self._bytes.__contains__):
            if is_byte:
                yield from bytes(map(self._bytes.__getitem__, run)).decode(errors="replace")
            else:
                yield from map(str, map(self._tokenizer.id_to_token, run))


def _name(byte: int) -> str:
    return f"<0x{byte:02X}>"
