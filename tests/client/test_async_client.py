"""The asyncio client against a scripted service over real gRPC. `test_blocking.py` covers the shared rules."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from outrider.client import (
    Admission,
    AsyncClient,
    AsyncGenerationStream,
    Cancelled,
    Client,
    Completion,
    DeadlineExceeded,
    Event,
    Health,
    InvalidRequest,
    ModelExchanged,
    NotFound,
    RetryPolicy,
    SamplingOptions,
    TextChunk,
    Unavailable,
)

if TYPE_CHECKING:
    from tests.client.conftest import Failure, FakeService, MakeFake

QUICK = RetryPolicy(initial_backoff_s=0.01, max_backoff_s=0.05)


async def wait_ended(fake: FakeService) -> bool:
    """True once the service has seen its call cancelled."""
    return await asyncio.to_thread(fake.ended.wait, 60)


async def waits(stream: AsyncGenerationStream) -> asyncio.Future[Event]:
    """A task that waits for an event: what comes before the service stalls, after six tokens, has been read."""
    num_tokens = 0
    while num_tokens < 6:
        event = await anext(stream)
        num_tokens += len(event.tokens) if isinstance(event, TextChunk) else 0
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    return waiting


async def test_events_come_in_order_and_once(fake: FakeService) -> None:
    """A stream holds the admission, chunks whose tokens are the output, and one completion."""
    async with AsyncClient(fake.address) as client:
        events = [event async for event in client.stream("hi", sampling=SamplingOptions(seed=3))]
    assert isinstance(events[0], Admission)
    assert isinstance(events[-1], Completion)
    chunks = [event for event in events if isinstance(event, TextChunk)]
    assert fake.output(3) == bytes(token.id for event in chunks for token in event.tokens)


async def test_requests_run_side_by_side(fake: FakeService) -> None:
    """One client carries several generations at once."""
    async with AsyncClient(fake.address) as client:
        results = await asyncio.gather(
            *(client.generate("hi", sampling=SamplingOptions(seed=seed)) for seed in range(6))
        )
    assert [fake.output(seed) for seed in range(6)] == [
        bytes(result.outputs[0].token_ids) for result in results
    ]


async def test_break_cancels(fake: FakeService) -> None:
    """Leaving the loop ends the call at the service."""
    fake.stall_after = 6
    async with AsyncClient(fake.address) as client:
        async for event in client.stream("hello"):
            if isinstance(event, TextChunk):
                break
        assert await wait_ended(fake)


async def test_exception_inside_the_block_cancels(fake: FakeService) -> None:
    """An error in the caller's code ends the call at the service."""
    fake.stall_after = 6
    async with AsyncClient(fake.address) as client:
        with pytest.raises(KeyError):
            async with client.stream("hello") as stream:
                raise KeyError(await anext(stream))
        assert await wait_ended(fake)


async def test_cancelled_task_cancels_the_call(fake: FakeService) -> None:
    """Cancelling the task that waits ends the call, and the task's cancellation is not swallowed."""
    fake.stall_after = 6
    async with AsyncClient(fake.address) as client:
        task = asyncio.create_task(client.generate("hello"))
        assert await asyncio.to_thread(fake.began.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await wait_ended(fake)


async def test_cancel_from_another_task(fake: FakeService) -> None:
    """A task that waits for an event gets Cancelled."""
    fake.stall_after = 6
    async with AsyncClient(fake.address) as client:
        stream = client.stream("hello")
        waiting = await waits(stream)
        stream.cancel()
        with pytest.raises(Cancelled):
            await waiting
        assert await wait_ended(fake)
    assert len(fake.requests) == 1


async def test_closing_the_client_cancels(fake: FakeService) -> None:
    """A task that waits for an event of a client that is closed gets Cancelled, and is not itself cancelled."""
    fake.stall_after = 6
    client = AsyncClient(fake.address)
    waiting = await waits(client.stream("hello"))
    await client.close()
    with pytest.raises(Cancelled):
        await waiting
    assert await wait_ended(fake)


async def test_an_error_of_a_client_that_is_closed_holds_what_had_arrived(
    fake: FakeService,
) -> None:
    """As other errors that end a text do."""
    fake.stall_after = 6
    client = AsyncClient(fake.address)
    stream = client.stream("hello", sampling=SamplingOptions(seed=3))
    waiting = await waits(stream)
    await client.close()
    with pytest.raises(Cancelled) as caught:
        await waiting
    assert fake.output(3)[:6] == bytes(caught.value.received_tokens)
    assert caught.value.request_id == stream.request_id


@pytest.mark.parametrize(
    "call", [lambda client: client.status(), lambda client: client.abort("mine")]
)
async def test_closing_the_client_ends_short_calls(
    mute_port: str, call: Callable[[AsyncClient], Coroutine[Any, Any, object]]
) -> None:
    """They are told so; the task that waits for one is not itself cancelled."""
    client = AsyncClient(mute_port)
    asked = asyncio.create_task(call(client))
    await asyncio.sleep(0.1)
    await client.close()
    async with asyncio.timeout(60.0):
        with pytest.raises(Cancelled):
            await asked


async def test_closing_the_client_while_a_former_stream_is_aborted(
    fake: FakeService, failure: type[Failure]
) -> None:
    """The stream that was to be taken up again is told so."""
    fake.failures = [
        failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9),
        failure(code=grpc.StatusCode.ALREADY_EXISTS),
    ]
    fake.abort_stalls = True
    client = AsyncClient(fake.address, retry=QUICK)
    asked = asyncio.create_task(client.generate("hello"))
    assert await asyncio.to_thread(fake.aborting.wait, 60)
    await client.close()
    async with asyncio.timeout(60.0):
        with pytest.raises(Cancelled):
            await asked


async def test_timeout_ends_a_stream(fake: FakeService) -> None:
    """The deadline reaches the service, the error holds what had arrived."""
    fake.stall_after = 6
    async with AsyncClient(fake.address) as client:
        for timeout_s in (0.3, 3.0, 30.0):  # a slow machine may not answer within the first
            with pytest.raises(DeadlineExceeded) as caught:
                await client.generate(
                    "hello", sampling=SamplingOptions(seed=3), timeout_s=timeout_s
                )
            if caught.value.received_tokens:
                break
    assert fake.output(3)[:6] == bytes(caught.value.received_tokens)
    assert await wait_ended(fake)


async def test_broken_stream_is_resumed(fake: FakeService, failure: type[Failure]) -> None:
    """After breaks amid characters the output is whole, text and tokens."""
    cut = grpc.StatusCode.UNAVAILABLE
    fake.failures = [failure(code=cut, after_tokens=n) for n in (9, 2, 0, 1, 4)]
    async with AsyncClient(fake.address, retry=QUICK) as client:
        result = await client.generate("hello", sampling=SamplingOptions(max_tokens=40))
    whole = fake.output(41, max_tokens=40)
    assert whole == bytes(token.id for token in result.tokens)
    assert whole.decode(errors="replace") == result.text
    assert result.resumes == 5


async def test_service_dies_amid_a_stream(make_fake: MakeFake) -> None:
    """When a whole server goes down, its streams go on at the next address."""
    one, two = make_fake("one"), make_fake("two")
    one.stall_after = 9
    async with AsyncClient([one.address, two.address], retry=QUICK) as client:
        task = asyncio.create_task(client.generate("hello", sampling=SamplingOptions(seed=5)))
        assert await asyncio.to_thread(one.began.wait, 60)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(one.kill)
        result = await asyncio.wait_for(task, 60)
    assert one.output(5) == bytes(token.id for token in result.tokens)
    assert len(two.requests) == 1


async def test_a_text_is_never_of_two_models(make_fake: MakeFake, failure: type[Failure]) -> None:
    """As of the blocking client: on past addresses of another model, to the end or to an error that says so."""
    one, two, three = make_fake("one"), make_fake("two"), make_fake("three")
    two.model_fingerprint = "beef"
    cut = failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9)
    one.failures = [cut]
    addresses = [one.address, two.address, three.address]
    async with AsyncClient(addresses, retry=QUICK) as client:
        result = await client.generate("hello", sampling=SamplingOptions(seed=5))
    assert one.output(5) == bytes(token.id for token in result.tokens)
    assert len(two.requests) == 1
    one.failures = [cut, *[failure(code=grpc.StatusCode.UNAVAILABLE)] * 9]
    async with AsyncClient(addresses[:2], retry=QUICK) as client:
        with pytest.raises(ModelExchanged, match="9 tokens were received") as caught:
            await client.generate("hello", sampling=SamplingOptions(seed=5))
    assert one.output(5)[:9] == bytes(caught.value.received_tokens)


async def test_nobody_listens(closed_port: str) -> None:
    """A refused connection is an error at once, after few tries."""
    async with AsyncClient(closed_port, retry=QUICK) as client:
        with pytest.raises(Unavailable):
            await client.generate("hello")
        with pytest.raises(Unavailable):
            await client.models()


async def test_mute_peer_is_bounded_by_the_connect_timeout(mute_port: str) -> None:
    """A peer that accepts and stays silent counts as refused after the connect timeout."""
    policy = RetryPolicy(open_attempts=1)
    async with AsyncClient(mute_port, connect_timeout_s=0.3, retry=policy) as client:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(client.generate("hello"), 10)


async def test_short_calls(closed_port: str, fake: FakeService) -> None:
    """Models, tokens, health, abort and status, past a dead first address."""
    async with AsyncClient([closed_port, fake.address], retry=QUICK) as client:
        assert [model.name for model in await client.models()] == ["demo"]
        assert await client.detokenize(await client.tokenize("größe")) == "größe"
        assert await client.health() is Health.SERVING
        assert await client.health("nothing") is Health.SERVICE_UNKNOWN
        assert await client.abort("running")
        assert (await client.status()).accepting


async def test_errors_are_told_apart(fake: FakeService) -> None:
    """Unknown models, and values that no message can hold."""
    async with AsyncClient(fake.address) as client:
        with pytest.raises(NotFound) as caught:
            await client.generate("hello", model="none")
        assert caught.value.field == "model"
        with pytest.raises(InvalidRequest):
            client.stream("hello", sampling=SamplingOptions(max_tokens=-1))


def test_a_client_is_used_on_one_loop_after_the_other(fake: FakeService) -> None:
    """As a module that keeps one for all its calls of `asyncio.run`."""
    client = AsyncClient(fake.address)

    async def ask() -> tuple[Health, int]:
        result = await client.generate("hi", sampling=SamplingOptions(seed=3))
        return await client.health(), len(result.outputs)

    assert [asyncio.run(ask()) for _ in range(3)] == [(Health.SERVING, 1)] * 3
    asyncio.run(client.close())


async def test_closing_the_client_ends_calls_of_other_loops(
    fake: FakeService, mute_port: str
) -> None:
    """Streams and short calls that run there are told so, and what began elsewhere ends there."""
    fake.stall_after = 6
    streaming, asking = AsyncClient(fake.address), AsyncClient(mute_port)
    is_waiting = threading.Event()

    async def wait_elsewhere() -> None:
        waiting = await waits(streaming.stream("hello"))
        asked = asyncio.create_task(asking.abort("mine"))
        await asyncio.sleep(0.1)
        is_waiting.set()
        async with asyncio.timeout(20.0):
            for call in (waiting, asked):
                with pytest.raises(Cancelled):
                    await call

    elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, wait_elsewhere()))
    assert await asyncio.to_thread(is_waiting.wait, 60)
    await streaming.close()
    await asking.close()
    await elsewhere
    assert await wait_ended(fake)


def test_both_clients_have_the_same_surface() -> None:
    """Each public method takes the same arguments with the same defaults in both."""

    def surface(kind: type) -> dict[str, list[tuple[str, object]]]:
        return {
            name: [(p.name, p.default) for p in inspect.signature(member).parameters.values()]
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") or name == "__init__"
        }

    assert surface(Client) == surface(AsyncClient)
