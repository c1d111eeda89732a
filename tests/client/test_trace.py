"""Traces that run, for threads and for asyncio."""

from __future__ import annotations

import time

import grpc
import pytest
from tests.client.conftest import Failure, FakeService
from tests.client.timeline.build import service

from outrider.client import AsyncClient, Client
from outrider.client.connection.errors import InvalidRequest, NotFound, Overloaded, Unavailable
from outrider.client.timeline.summary import summarise


def test_trace_for_threads(fake: FakeService) -> None:
    """The whole trace, assembled."""
    fake.trace_responses = service().end()
    with Client(fake.address) as client:
        timeline = client.trace(seconds=3.0)
    assert timeline.ended == "time"
    assert summarise(timeline).rounds.committed == 6


def test_stopping(fake: FakeService) -> None:
    """A trace that is stopped keeps what came, and the service is told."""
    fake.trace_responses = service().responses
    fake.trace_stalls = True
    with Client(fake.address) as client:
        with client.start_trace(seconds=100.0) as trace:
            trace.wait_started()
        trace.stop()
        timeline = trace.result()
    assert timeline.ended == "it was stopped"
    assert summarise(timeline).rounds.committed == 6


async def test_stopping_for_asyncio(fake: FakeService) -> None:
    """The same."""
    fake.trace_responses = service().responses
    fake.trace_stalls = True
    async with AsyncClient(fake.address) as client:
        async with client.start_trace(seconds=100.0) as trace:
            await trace.wait_started()
        timeline = await trace.result()
    assert timeline.ended == "it was stopped"
    assert summarise(timeline).rounds.committed == 6


def test_a_stream_that_breaks_keeps_what_came(fake: FakeService) -> None:
    """The end says what happened; the deadline of the call bounds everything."""
    fake.trace_responses = service().responses
    fake.trace_stalls = True
    with Client(fake.address) as client:
        trace = client.start_trace(seconds=100.0)
        whole = sum(len(response.records.spans) for response in fake.trace_responses)
        deadline = time.monotonic() + 60.0
        while trace.num_records < whole and time.monotonic() < deadline:
            time.sleep(0.01)
        fake.kill()
        timeline = trace.result()
    assert timeline.ended.startswith("the stream broke")
    assert summarise(timeline).rounds.committed == 6


async def test_a_trace_is_of_the_address_that_answers(closed_port: str, fake: FakeService) -> None:
    """As other calls are, for threads and for asyncio; where none answers, the error says so."""
    fake.trace_responses = service().end()
    with Client([closed_port, fake.address]) as client:
        assert client.trace(seconds=3.0).ended == "time"
        assert client.trace(seconds=3.0).ended == "time"
    async with AsyncClient([closed_port, fake.address]) as asking:
        assert (await asking.trace(seconds=3.0)).ended == "time"
    with Client([closed_port, f"unix:{closed_port}"]) as client, pytest.raises(Unavailable):
        client.trace(seconds=3.0)
    assert len(fake.trace_requests) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Overloaded),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequest),
    ],
)
def test_refusals(fake: FakeService, code: grpc.StatusCode, kind: type[Exception]) -> None:
    """By cause."""
    fake.trace_failures = [Failure(code=code)]
    with Client(fake.address) as client, pytest.raises(kind):
        client.trace(seconds=1.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"seconds": "x"},
        {"seconds": 10**400},
        {"max_records": -1},
        {"request_id": 3},
        {"nodes": "yes"},
    ],
)
def test_nonsense_is_not_sent(fake: FakeService, wrong: dict[str, object]) -> None:
    """Refused before the service hears of it."""
    with Client(fake.address) as client, pytest.raises(InvalidRequest) as caught:
        client.trace(**wrong)  # type: ignore[arg-type]  # that is the point
    assert caught.value.field == next(iter(wrong))
    assert fake.trace_requests == []
