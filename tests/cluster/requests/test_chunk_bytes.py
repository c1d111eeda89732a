"""Chunks as bytes: what protobuf makes of the same chunk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.cluster.requests.chunk_bytes import chunk_bytes, origin_of
from outrider.cluster.requests.session_commands import Deliver
from outrider.v1 import generation_pb2

TOKENS = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(-1, 300)),
    max_size=20,
)


def _token(token: int, origin: int, logprob: float | None = None) -> generation_pb2.Token:
    made = generation_pb2.Token(id=token, logprob=logprob)
    made.origin = generation_pb2.ORIGIN_TARGET
    if origin >= 0:
        made.origin, made.drafter = generation_pb2.ORIGIN_DRAFTER, origin
    return made


@given(index=st.integers(0, 300), text=st.text(max_size=200), tokens=TOKENS)
def test_bytes_are_those_of_protobuf(index: int, text: str, tokens: list[tuple[int, int]]) -> None:
    """Any text, token, drafter and sequence."""
    expected = generation_pb2.GenerateResponse(
        index=index,
        chunk=generation_pb2.Chunk(text=text, tokens=[_token(*token) for token in tokens]),
    )
    chunk = Deliver(text, [token for token, _ in tokens], [origin for _, origin in tokens])
    assert generation_pb2.GenerateResponse.FromString(chunk_bytes(index, chunk)) == expected


def test_log_probabilities_are_kept() -> None:
    """Tokens that the target told one by one are passed on as they are."""
    told = [_token(5, 1, -0.5), _token(6, -1, -1.5)]
    chunk = Deliver("ab", [5, 6], [origin_of(token) for token in told], told)
    response = generation_pb2.GenerateResponse.FromString(chunk_bytes(2, chunk))
    assert (response.index, response.chunk.text) == (2, "ab")
    assert list(response.chunk.tokens) == told
    assert chunk.origins == [1, -1]
