"""How both clients wait for a full or absent service: a scripted one over real gRPC, and a clock that only pauses move."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import pytest

from outrider.client import (
    NO_RETRY,
    AsyncClient,
    Cancelled,
    Client,
    Overloaded,
    RetryPolicy,
    SamplingOptions,
    TextChunk,
    Unavailable,
)
from outrider.client import async_stream as async_module
from outrider.client.connection.waits import AsyncioWaits, BlockingWaits

if TYPE_CHECKING:
    from tests.client.conftest import Failure, FakeService

FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
CUT = grpc.StatusCode.UNAVAILABLE


class Clock:
    """A monotonic clock that stands still but for the pauses of streams."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def wait(self, flag: object, seconds: float) -> bool:
        """Takes the place of `Waits.wait`; nobody cancels."""
        self.pauses.append(seconds)
        self.now_s += seconds
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every stream, of either client."""
    made = Clock()
    monkeypatch.setattr(async_module, "monotonic", made)
    for waits in (AsyncioWaits, BlockingWaits):
        monkeypatch.setattr(waits, "wait", made.wait)
    return made


def blocking_stream(address: str, *, retry: RetryPolicy | None = None, timeout_s: float) -> str:
    """The streamed text, by the blocking client."""
    with Client(address, retry=retry, timeout_s=timeout_s) as client:
        events = list(client.stream("hi", sampling=SamplingOptions(seed=3)))
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def blocking_generate(address: str, *, retry: RetryPolicy | None = None, timeout_s: float) -> str:
    """The whole text, by the blocking client."""
    with Client(address, retry=retry) as client:
        sampling = SamplingOptions(seed=3)
        return client.generate("hi", sampling=sampling, timeout_s=timeout_s).text


def async_stream(address: str, *, retry: RetryPolicy | None = None, timeout_s: float) -> str:
    """The streamed text, by the asyncio client."""

    async def run() -> str:
        async with AsyncClient(address, retry=retry, timeout_s=timeout_s) as client:
            stream = client.stream("hi", sampling=SamplingOptions(seed=3))
            return "".join([event.text async for event in stream if isinstance(event, TextChunk)])

    return asyncio.run(run())


def async_generate(address: str, *, retry: RetryPolicy | None = None, timeout_s: float) -> str:
    """The whole text, by the asyncio client."""

    async def run() -> str:
        async with AsyncClient(address, retry=retry) as client:
            sampling = SamplingOptions(seed=3)
            return (await client.generate("hi", sampling=sampling, timeout_s=timeout_s)).text

    return asyncio.run(run())


WAYS = (blocking_stream, blocking_generate, async_stream, async_generate)
every_way = pytest.mark.parametrize("text_of", WAYS, ids=lambda way: way.__name__)


@every_way
def test_refused_for_load_then_served(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """The request is sent again, the same one, after pauses that are never shorter than advised."""
    fake.failures = [failure(code=FULL, retry_after_s=1.5) for _ in range(12)]

    assert text_of(fake.address, timeout_s=300.0) == fake.output(3).decode(errors="replace")
    assert len(fake.requests) == 13
    assert len({request.SerializeToString() for request in fake.requests}) == 1
    assert len(clock.pauses) == 12
    assert min(clock.pauses) >= 1.5
    assert len(set(clock.pauses)) > 1, "clients that were told the same must not come back together"


@every_way
def test_refused_past_the_deadline(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """The refusal itself, with its advice, once the next try would come too late, and not after that."""
    fake.failures = [failure(code=FULL, retry_after_s=1.5) for _ in range(100)]

    with pytest.raises(Overloaded, match="scripted") as caught:
        text_of(fake.address, timeout_s=10.0)
    assert caught.value.retry_after_s == 1.5
    assert caught.value.request_id == fake.requests[0].request_id
    assert 1 < len(fake.requests) < 8
    assert clock.now_s < 1000.0 + 10.0


@every_way
def test_waiting_for_room_can_be_switched_off(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """Without patience the first refusal is the answer."""
    fake.failures = [failure(code=FULL, retry_after_s=1.5)]

    with pytest.raises(Overloaded):
        text_of(fake.address, retry=NO_RETRY, timeout_s=300.0)
    assert len(fake.requests) == 1
    assert clock.pauses == []


@every_way
def test_stream_outlives_a_long_outage(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """A service that is back after minutes takes the stream up where it broke; pauses grow up to their bound."""
    fake.failures = [failure(code=CUT, after_tokens=9), *(failure(code=CUT) for _ in range(50))]

    assert text_of(fake.address, timeout_s=300.0) == fake.output(3).decode(errors="replace")
    assert len(fake.requests) == 52
    assert len(fake.requests[-1].resume.ids) == 9
    assert 120.0 < clock.now_s - 1000.0 < 300.0
    assert clock.pauses[0] <= 0.1
    assert 2.5 <= clock.pauses[-1] <= RetryPolicy().max_backoff_s


@every_way
def test_a_place_in_the_queue_outlives_a_long_outage(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """Who waited for a slot at a service that broke knows that there is one, and waits for it as a stream that was admitted does."""
    fake.failures = [failure(code=CUT, is_queued=True), *(failure(code=CUT) for _ in range(50))]

    assert text_of(fake.address, timeout_s=300.0) == fake.output(3).decode(errors="replace")
    assert len({request.SerializeToString() for request in fake.requests}) == 1
    assert 120.0 < clock.now_s - 1000.0 < 300.0


@every_way
def test_a_service_that_ends_its_queue_itself_is_not_waited_for(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """It says that there is no target, say; that is an answer, and tried again as often as any."""
    gone = failure(code=CUT, is_queued=True, retry_after_s=1.0)
    fake.failures = [gone] * 50

    with pytest.raises(Unavailable):
        text_of(fake.address, timeout_s=300.0)
    assert len(fake.requests) == RetryPolicy().open_attempts


@every_way
def test_outage_is_bounded_by_patience_and_by_the_deadline(
    text_of: Callable[..., str], fake: FakeService, failure: type[Failure], clock: Clock
) -> None:
    """Whichever ends first; the error holds what had arrived."""
    fake.failures = [failure(code=CUT, after_tokens=9), *(failure(code=CUT) for _ in range(5000))]

    with pytest.raises(Unavailable) as caught:
        text_of(fake.address, timeout_s=7 * 24 * 3600.0)
    patience_s = RetryPolicy().patience_s
    assert patience_s <= clock.now_s - 1000.0 <= patience_s + RetryPolicy().max_backoff_s
    assert fake.output(3)[:9] == bytes(caught.value.received_tokens)

    began_s, fake.failures[0] = clock.now_s, failure(code=CUT, after_tokens=9)
    with pytest.raises(Unavailable):
        text_of(fake.address, timeout_s=60.0)
    assert 60.0 - RetryPolicy().max_backoff_s <= clock.now_s - began_s < 60.0


def test_waiting_for_room_can_be_cancelled(fake: FakeService, failure: type[Failure]) -> None:
    """Whoever waits as advised hears a cancellation at once, and sends nothing more."""
    fake.failures = [failure(code=FULL, retry_after_s=100.0)] * 2

    async def run() -> None:
        async with AsyncClient(fake.address) as client:
            stream = client.stream("hi")
            task = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(fake.began.wait, 60)
            await asyncio.sleep(0.05)
            stream.cancel()
            with pytest.raises(Cancelled):
                await task

    asyncio.run(run())
    with Client(fake.address) as client:
        stream = client.stream("hi")
        timer = threading.Timer(1.0, stream.cancel)
        timer.start()
        with pytest.raises(Cancelled):
            next(stream)
        timer.join(60)
    assert len(fake.requests) == 2
