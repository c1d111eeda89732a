"""A coordinator of two models, whose drafters and texts each fit one or both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import structlog
from tests.cluster.asking import ask, generate, refusal
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import Script, ScriptedDrafter, ScriptedTarget

from outrider.cluster.config.coordinator_settings import FurtherModel
from outrider.v1 import generation_pb2, target_pb2


def made(model: str) -> ScriptedTarget:
    """A target of a model."""
    target = ScriptedTarget(Script(), name=model, model=model)
    target.fingerprint = f"print of {model}"
    return target


@pytest.fixture
async def large() -> AsyncIterator[ScriptedTarget]:
    """The first model's."""
    target = made("large")
    await target.start()
    yield target
    await target.stop()


@pytest.fixture
async def small() -> AsyncIterator[ScriptedTarget]:
    """The second model's."""
    target = made("small")
    await target.start()
    yield target
    await target.stop()


async def both(
    serve: Serve,
    large: ScriptedTarget,
    small: ScriptedTarget,
    drafter: str = "",
    **settings: Any,
) -> Front:
    """A coordinator of the two, connected to everyone."""
    front = await serve(
        model_name="large",
        targets=(large.address,),
        further=(FurtherModel(name="small", targets=(small.address,)),),
        drafters=(("draft-0", drafter),) if drafter else (),
        **settings,
    )
    await connected(front, 4 if drafter else 3)
    return front


async def connected(front: Front, count: int) -> None:
    """Waits until so many actors are ready, the coordinator among them."""
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if sum(actor.ready for actor in status.actors) == count:
                return
            await asyncio.sleep(0.01)


async def test_a_drafter_that_fits_one_of_them_serves_somebody(
    serve: Serve, large: ScriptedTarget, small: ScriptedTarget
) -> None:
    """Nobody is warned of it."""
    small.tokenizer = "other"
    drafter = ScriptedDrafter()
    await drafter.start()
    with structlog.testing.capture_logs() as said:
        await both(serve, large, small, drafter.address)
    await drafter.stop()
    assert "drafter serves nobody" not in [line["event"] for line in said]


@pytest.mark.parametrize(
    ("reads", "says"),
    [
        ({"layers": [1, 2], "width": 16}, "made for hidden states of 16 numbers"),
        ({"layers": [1, 3]}, "'small' has 2 blocks"),
        ({"layers": [-1], "width": 16}, "made for hidden states of 16 numbers"),
        ({"top_k": 4}, ""),
        ({"layers": [0, 2, -1]}, ""),
    ],
)
async def test_a_drafter_of_hidden_states_serves_the_models_that_have_them(
    serve: Serve,
    large: ScriptedTarget,
    small: ScriptedTarget,
    reads: dict[str, Any],
    says: str,
) -> None:
    """For the others it is not ready, with the reason; it is left out, or refused where a request names it."""
    large.num_blocks, large.width = 4, 16
    small.num_blocks, small.width = 2, 8
    drafter = ScriptedDrafter(reads=target_pb2.FeedbackSubscription(**reads))
    await drafter.start()
    try:
        front = await both(serve, large, small, drafter.address)
        models = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
        told = {model.name: model.drafters[0] for model in models}
        assert told["large"].ready
        assert told["large"].problem == ""
        assert told["small"].ready == (not says)
        assert says in told["small"].problem
        for model in ("large", "small"):
            request = ask(max_tokens=4)
            request.model = model
            await generate(front, request)
            request.speculation.drafters.append("draft-0")
            if says and model == "small":
                error = await refusal(front, request)
                assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert says in (error.details() or "")
            else:
                await generate(front, request)
        async with asyncio.timeout(60.0):
            while True:
                if len(drafter.attached) == (2 if says else 4):
                    break
                await asyncio.sleep(0.01)
        addresses = {one.target_address for one in drafter.attached}
        assert addresses == ({large.address} if says else {large.address, small.address})
    finally:
        await drafter.stop()


async def test_a_model_whose_texts_cannot_be_read_is_told_at_once(
    serve: Serve, large: ScriptedTarget, small: ScriptedTarget
) -> None:
    """Where the service was started, and not only to who asks for it."""
    small.tokenizer = "other"
    with structlog.testing.capture_logs() as said:
        front = await both(serve, large, small)
    (line,) = [line for line in said if line["event"] == "model serves nobody"]
    assert (line["model"], "another tokenizer than 'large'" in line["reason"]) == ("small", True)
    request = ask(max_tokens=4)
    request.model = "small"
    error = await refusal(front, request)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_one_model_outlives_the_targets_of_the_other(
    serve: Serve, large: ScriptedTarget, small: ScriptedTarget
) -> None:
    """The first one's have been given up: who asks for the second is answered as before."""
    front = await both(serve, large, small, target_wait_s=0.0)
    await large.stop()
    await connected(front, 2)
    error = await refusal(front, ask(max_tokens=4))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    request = ask(max_tokens=4)
    request.model = "small"
    assert (await generate(front, request)).text[0]
