"""Chunks of `GenerateResponse` as bytes.

A chunk is sent for every commit of every request, and most of its time would go into making a message object for each token.
Tokens without log-probabilities are few different ones, so their bytes are made once each, by protobuf.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from outrider.cluster.requests.session_commands import Deliver
from outrider.v1 import generation_pb2

_TEXT = b"\x0a"
_TOKEN = b"\x12"
"""Tags of `Chunk.text` and `Chunk.tokens`."""

_INDEX = b"\x08"
_CHUNK = b"\x1a"
"""Tags of `GenerateResponse.index` and `GenerateResponse.chunk`."""

KEPT = 1 << 15
"""Tokens whose bytes are kept: those of a common text many times over, in some megabytes."""


def chunk_bytes(index: int, chunk: Deliver) -> bytes:
    """What `GenerateResponse` makes of a chunk.

    Args:
        index: Which sequence of the request.
        chunk: Its text and tokens.
    """
    if chunk.told:
        told = generation_pb2.Chunk(text=chunk.text, tokens=chunk.told)
        return generation_pb2.GenerateResponse(index=index, chunk=told).SerializeToString()
    body = b"".join(map(_token, chunk.ids, chunk.origins))
    if chunk.text:
        text = chunk.text.encode()
        body = b"".join((_TEXT, _varint(len(text)), text, body))
    head = _INDEX + _varint(index) if index else b""
    return b"".join((head, _CHUNK, _varint(len(body)), body))


def serialised(response: Any) -> bytes:
    """A response for gRPC: bytes as they are, messages serialised."""
    return response if isinstance(response, bytes) else response.SerializeToString()


def origin_of(token: generation_pb2.Token) -> int:
    """The drafter that proposed a token, -1: the target itself."""
    return token.drafter if token.origin == generation_pb2.ORIGIN_DRAFTER else -1


@lru_cache(KEPT)
def _token(token: int, origin: int) -> bytes:
    """An entry of `Chunk.tokens`."""
    made = generation_pb2.Token(id=token, origin=generation_pb2.ORIGIN_TARGET)
    if origin >= 0:
        made.origin, made.drafter = generation_pb2.ORIGIN_DRAFTER, origin
    data = made.SerializeToString()
    return _TOKEN + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """As protobuf writes a number that is not negative."""
    if number < 128:
        return number.to_bytes(1)
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
