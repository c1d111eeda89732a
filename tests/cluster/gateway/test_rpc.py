"""Refusals over real gRPC: code, field and words; and the service goes on."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no stubs
from tests.cluster.asking import (
    Start,
    ask,
    bad,
    expected,
    generate,
    metadata,
    refusal,
)
from tests.cluster.scripted import ScriptedTarget

from outrider.v1 import generation_pb2

INVALID, RANGE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE
NOT_FOUND = grpc.StatusCode.NOT_FOUND

BAD: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
    ({}, INVALID, "prompt"),
    ({"text": ""}, INVALID, "text"),
    ({"tokens": {"ids": []}}, INVALID, "tokens.ids"),
    ({"tokens": {"ids": [256]}}, RANGE, "tokens.ids[0]"),
    ({"text": "x" * 64}, RANGE, "text"),
    ({"text": "x" * 3_000_000}, RANGE, "text"),
    ({"chat": {"messages": []}}, INVALID, "chat.messages"),
    ({"chat": {"messages": [{"role": "nobody", "content": "x"}]}}, INVALID, "chat.messages"),
    ({"text": "x", "model": "other"}, NOT_FOUND, "model"),
    ({"text": "x", "request_id": "a b"}, INVALID, "request_id"),
    ({"text": "x", "sampling": {"temperature": -1.0}}, INVALID, "sampling.temperature"),
    ({"text": "x", "sampling": {"temperature": float("nan")}}, INVALID, "sampling.temperature"),
    ({"text": "x", "sampling": {"top_p": 1.5}}, INVALID, "sampling.top_p"),
    ({"text": "x", "sampling": {"max_tokens": 0}}, INVALID, "sampling.max_tokens"),
    ({"text": "x", "sampling": {"max_tokens": 4_000_000_000}}, RANGE, "sampling.max_tokens"),
    ({"text": "x", "resume": {"ids": [1]}}, INVALID, "resume"),
    ({"text": "x", "speculation": {"drafters": ["d9"]}}, NOT_FOUND, "speculation.drafters[0]"),
]


async def test_bad_input_is_refused_and_changes_nothing(
    start: Start, target: ScriptedTarget
) -> None:
    """Each with its code and the field as rich detail; the service goes on as if nothing had been."""
    front = await start()
    for fields, code, field in BAD:
        error = await refusal(front, bad(**fields))
        assert error.code() is code, (fields, error.details())
        status = status_pb2.Status.FromString(metadata(error)["grpc-status-details-bin"])
        bad_request = error_details_pb2.BadRequest()
        assert status.details[0].Unpack(bad_request)
        assert bad_request.field_violations[0].field == field
        assert (error.details() or "").startswith(field)
    after = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert (after.running, after.waiting) == (0, 0)
    assert target.opens == []
    assert (await generate(front, ask(max_tokens=4))).text[0] == expected(4)


async def test_what_is_no_message_is_refused(start: Start) -> None:
    """Invalid UTF-8 and garbage, on a streaming and a plain method."""
    front = await start()
    invalid_utf8 = b"\x1a\x02\xff\xfe"
    for data, said in (
        (invalid_utf8, "text is not valid UTF-8"),
        (b"\xff\xff\xff", "not a valid outrider.v1.GenerateRequest"),
    ):
        generate_raw: Any = front.channel.unary_stream("/outrider.v1.GenerationService/Generate")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await generate_raw(data, timeout=60.0).read()
        assert failed.value.code() is INVALID
        assert said in (failed.value.details() or "")
    tokenize_raw: Any = front.channel.unary_unary("/outrider.v1.GenerationService/Tokenize")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await tokenize_raw(b"\x12\x02\xff\xfe", timeout=5.0)
    assert failed.value.code() is INVALID


async def test_too_large_a_message_is_refused(start: Start) -> None:
    """Five mebibytes are more than the limit: the field that holds them is named. gRPC itself ends what is far beyond."""
    front = await start()
    error = await refusal(front, bad(text="x" * (5 << 20)))
    assert error.code() is INVALID
    assert (error.details() or "").startswith("text is too large: the request has 5242")
    error = await refusal(front, bad(text="x" * (9 << 20)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in (error.details() or "")
    assert (await generate(front, ask(max_tokens=4))).text[0] == expected(4)


async def test_what_is_quoted_does_not_break_the_stream(start: Start) -> None:
    """A template that repeats a role of 100 000 characters: the refusal arrives, cut."""
    front = await start()
    turns = {"messages": [{"role": "nobody" + "y" * 100_000, "content": "x"}]}
    error = await refusal(front, bad(chat=turns))
    assert error.code() is INVALID
    assert (error.details() or "").startswith("chat.messages do")
    assert len(error.details() or "") <= 1024
