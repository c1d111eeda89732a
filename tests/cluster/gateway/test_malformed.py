"""Requests that cannot be read, or are too large: the field at fault is named."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cluster.gateway.rpc import invalid_text, parser
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import generation_pb2, sampling_pb2

LIMIT = 4096
parse = parser(generation_pb2.GenerateRequest, max_bytes=LIMIT)

SAMPLE = generation_pb2.GenerateRequest(
    request_id="RRRR",
    model="MMMM",
    chat=generation_pb2.ChatMessages(
        messages=[
            generation_pb2.ChatMessage(role="user", content="hi"),
            generation_pb2.ChatMessage(role="SSSS", content="CCCC"),
        ]
    ),
    sampling=sampling_pb2.SamplingOptions(
        temperature=0.5, seed=2**63, logit_bias={3: 1.0}, stop=["fine", "TTTT"]
    ),
    speculation=sampling_pb2.SpeculationOptions(drafters=["DDDD"]),
)


def refused(data: bytes) -> Refusal:
    """The refusal of some bytes."""
    answer = parse(data)
    assert isinstance(answer, Refusal)
    return answer


def test_what_can_be_read_is_read() -> None:
    """Text of every script, and fields of a later version."""
    request = generation_pb2.GenerateRequest(text="日本語 🙂")
    assert parse(request.SerializeToString()) == request
    later = request.SerializeToString() + b"\xfa\x3e\x02\xff\xfe"
    assert isinstance(parse(later), generation_pb2.GenerateRequest)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"RRRR", "request_id"),
        (b"MMMM", "model"),
        (b"SSSS", "chat.messages[1].role"),
        (b"CCCC", "chat.messages[1].content"),
        (b"TTTT", "sampling.stop[1]"),
        (b"DDDD", "speculation.drafters[0]"),
    ],
)
def test_text_that_is_not_utf8_is_named(text: bytes, field: str) -> None:
    """By its path, wherever it stands."""
    data = SAMPLE.SerializeToString()
    assert invalid_text(data, generation_pb2.GenerateRequest.DESCRIPTOR) == ""
    refusal = refused(data.replace(text, b"\xff\xfe\xc3\x28"))
    assert (refusal.code, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert refusal.message.startswith(f"{field} is not valid UTF-8")


@pytest.mark.parametrize("data", [b"\xff" * 40, b"\x1a\x7fhi", b"\x0c", b"\x1a", b"\x80" * 12])
def test_garbage_is_refused_in_words(data: bytes) -> None:
    """No field can be named, so the type is."""
    refusal = refused(data)
    assert (refusal.code, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, "")
    assert "not a valid outrider.v1.GenerateRequest" in refusal.message


@given(st.binary(max_size=200))
def test_no_bytes_break_the_search(data: bytes) -> None:
    """Whatever comes, an answer comes out."""
    assert isinstance(parse(data), (generation_pb2.GenerateRequest, Refusal))
    assert isinstance(invalid_text(data, generation_pb2.GenerateRequest.DESCRIPTOR), str)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (generation_pb2.GenerateRequest(text="x" * LIMIT), "text"),
        (
            generation_pb2.GenerateRequest(
                tokens=generation_pb2.TokenIds(ids=[7] * LIMIT), request_id="r" * 100
            ),
            "tokens",
        ),
        (
            generation_pb2.GenerateRequest(
                text="hi", sampling=sampling_pb2.SamplingOptions(stop=["x"] * LIMIT)
            ),
            "sampling",
        ),
    ],
)
def test_what_is_too_large_names_its_largest_field(
    request_: generation_pb2.GenerateRequest, field: str
) -> None:
    """With both sizes and the limit."""
    refusal = refused(request_.SerializeToString())
    assert (refusal.code, refusal.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert str(request_.ByteSize()) in refusal.message
    assert f"at most {LIMIT}" in refusal.message
