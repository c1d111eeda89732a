"""A model that is exchanged while it decodes: no text is begun by one and ended by another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest
from tests.cluster.asking import ask, expected, generate, metadata, ready, refusal, until
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import Script, ScriptedTarget

from outrider.client import AsyncClient, ModelExchanged, RetryPolicy, SamplingOptions, TextChunk
from outrider.v1 import generation_pb2

OLD, NEW = "0123456789abcdef", "fedcba9876543210"
QUICK = RetryPolicy(initial_backoff_s=0.01, max_backoff_s=0.05)


def louder(prompt: Sequence[int], seed: int, position: int) -> int:
    """What the new model says."""
    return 65 + position % 26


def made(fingerprint: str, *, name: str = "target-0") -> ScriptedTarget:
    """A target that serves one of the two models, under the same name."""
    target = ScriptedTarget(Script(pause_s=0.005, max_context=400), name=name)
    if fingerprint == NEW:
        target.script.token = louder
    target.fingerprint = fingerprint
    return target


@pytest.fixture
async def old() -> AsyncIterator[ScriptedTarget]:
    """The model that is exchanged."""
    target = made(OLD)
    await target.start()
    yield target
    await target.stop()


@pytest.fixture
async def new() -> AsyncIterator[ScriptedTarget]:
    """The one that replaces it."""
    target = made(NEW)
    await target.start()
    yield target
    await target.stop()


async def in_front(serve: Serve, target: ScriptedTarget) -> Front:
    """A coordinator that serves a target."""
    front = await serve(targets=(target.address,))
    await ready(front)
    return front


async def test_the_admission_tells_whose_text_it_is(serve: Serve, old: ScriptedTarget) -> None:
    """And a request for that model, or for any, is answered; to go on without saying whose text it is, is refused."""
    front = await in_front(serve, old)
    request = ask(max_tokens=6)
    output = await generate(front, request)
    assert output.admission is not None
    assert output.admission.model_fingerprint == OLD
    request.resume.ids.extend(expected(6)[:2].encode())
    error = await refusal(front, request)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "model_fingerprint" in (error.details() or "")
    request.model_fingerprint = OLD
    assert (await generate(front, request)).text[0] == expected(6)[2:]


@pytest.mark.parametrize("model", ["", "former-name"])
async def test_a_resume_at_another_model_is_refused(
    serve: Serve, new: ScriptedTarget, model: str
) -> None:
    """With a status that no wait mends, and that names the field; whatever the models are called. The target hears nothing of it."""
    front = await in_front(serve, new)
    request = ask(max_tokens=6)
    request.model, request.model_fingerprint = model, OLD
    request.resume.ids.extend(expected(2).encode())
    error = await refusal(front, request)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "exchanged" in (error.details() or "")
    assert "grpc-retry-pushback-ms" not in metadata(error)
    assert new.opens == []


async def test_a_stream_cut_by_the_end_of_a_drain_never_goes_on_at_another_model(
    serve: Serve, old: ScriptedTarget, new: ScriptedTarget
) -> None:
    """The old coordinator ends with the text half done: at the new model's address the client is refused and says so, with what had
    come; where the old model is still served too, the text goes on there and is whole."""
    third = made(OLD, name="target-1")
    await third.start()
    replaced, replacing, other = [await in_front(serve, one) for one in (old, new, third)]
    options = SamplingOptions(seed=3, max_tokens=300)

    async def cut_after(addresses: list[str], tokens: list[int]) -> None:
        async with AsyncClient(addresses, retry=QUICK) as client:
            async for event in client.stream("abc", sampling=options):
                if isinstance(event, TextChunk):
                    tokens += [token.id for token in event.tokens]

    lost: list[int] = []
    kept: list[int] = []
    with_other = [replaced.address, replacing.address, other.address]
    runs = [
        asyncio.ensure_future(cut_after(with_other[:2], lost)),
        asyncio.ensure_future(cut_after(with_other, kept)),
    ]
    await until(lambda: bool(lost) and bool(kept))
    await replaced.coordinator.stop(0.0)
    with pytest.raises(ModelExchanged) as caught:
        await runs[0]
    assert caught.value.received_tokens == tuple(lost)
    assert f"{len(lost)} tokens were received of 'scripted'" in caught.value.message
    assert bytes(lost).decode() == expected(len(lost))
    assert len(lost) < 300
    await runs[1]
    assert bytes(kept).decode() == expected(300)
    assert new.opens == []
    await third.stop()


async def test_a_target_that_returns_with_another_model_takes_no_text_over(
    serve: Serve, old: ScriptedTarget, new: ScriptedTarget
) -> None:
    """Its coordinator's own attempt to open the session again ends with the same refusal; new requests are served."""
    front = await in_front(serve, old)
    old.script.hold = asyncio.Event()
    running = asyncio.ensure_future(refusal(front, ask(max_tokens=30)))
    await until(lambda: bool(old.running))
    await old.stop()
    await new.stop()
    await new.start(old.address)
    error = await running
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert new.opens == []
    output = await generate(front, ask(max_tokens=4))
    assert output.text[0] == "ABCD"


async def test_targets_of_two_models_are_not_used_side_by_side(
    serve: Serve, old: ScriptedTarget, new: ScriptedTarget
) -> None:
    """Requests would be answered by either, and a text that moves could not go on."""
    both = await serve(targets=(old.address, new.address))
    await ready(both)
    targets: list[generation_pb2.ActorStatus] = []
    async with asyncio.timeout(60.0):
        while not any("in another form" in one.problem for one in targets):
            status = await both.stub.GetStatus(generation_pb2.GetStatusRequest())
            targets = [one for one in status.actors if one.role == "target"]
    assert sum(one.ready for one in targets) == 1
