"""One request's lines in the logs of coordinator, target and drafter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from tests.cluster.front import Serve
from tests.cluster.metrics.page import Scraped
from tests.cluster.scripted import ByteCodec
from tests.cluster.served.test_together import request

from outrider.cluster.gateway import gateway


async def test_one_name_finds_a_request_everywhere(scraped: Scraped) -> None:
    """Its beginning and its end at each of the three, at debug level or above."""
    asked = request(1, max_tokens=200)
    asked.request_id = "the-one"
    with capture_logs() as lines:
        await scraped.together.generate(request(2, max_tokens=4))
        await scraped.together.generate(asked)
        async with asyncio.timeout(60.0):
            # The drafter hears of the end last.
            while "session left" not in events(lines, "the-one"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert events(lines, "the-one") >= {
        "request accepted",
        "session opened",
        "session attached",
        "session ended",
        "session left",
        "request ended",
    }


async def test_the_reason_of_a_refusal_stands_beside_the_name(serve: Serve) -> None:
    """And of a field that is at fault only the name: who refuses it may quote what the client wrote there."""
    front = await serve(codec=ByteCodec())
    asked = request(1)
    asked.request_id = "the-one"
    with capture_logs() as lines:
        with pytest.raises(grpc.aio.AioRpcError):
            await front.stub.Generate(asked, timeout=60.0).read()
        asked.request_id = "a secret text"
        with pytest.raises(grpc.aio.AioRpcError, match="a secret text"):
            await front.stub.Generate(asked, timeout=60.0).read()
    refused, wrong = [line for line in lines if line["event"] == "request ended"]
    assert (refused["request_id"], refused["outcome"]) == ("the-one", "UNAVAILABLE")
    assert "no target is reachable" in refused["reason"]
    assert (wrong["outcome"], wrong["field"]) == ("INVALID_ARGUMENT", "request_id")
    assert "secret" not in repr(lines)


async def test_a_defect_names_its_request(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its traceback."""
    asked = request(1)
    asked.request_id = "the-one"

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(gateway, "settle", broken)
    with capture_logs() as lines, pytest.raises(grpc.aio.AioRpcError) as caught:
        await scraped.together.generate(asked)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    (failed,) = [line for line in lines if line["log_level"] == "error"]
    assert (failed["request_id"], failed["exc_info"]) == ("the-one", True)
    assert "request ended" in events(lines, "the-one")


def events(lines: Sequence[Mapping[str, Any]], request_id: str) -> set[str]:
    """The events that name a request."""
    return {line["event"] for line in lines if line.get("request_id") == request_id}
