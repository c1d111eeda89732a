"""Lists of models and actors, over real gRPC."""

from __future__ import annotations

import asyncio

from tests.cluster.asking import (
    Start,
    ask,
    generate,
    until,
)
from tests.cluster.scripted import EOS, ScriptedTarget

from outrider.v1 import generation_pb2


async def test_models_are_listed(start: Start) -> None:
    """With what a client needs to know."""
    front = await start(drafters=(("d0", "127.0.0.1:1"),))
    (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert (model.name, model.vocab_size, model.max_context) == ("scripted", 256, 64)
    assert list(model.eos_token_ids) == [EOS]
    assert model.has_chat_template
    assert [(drafter.name, drafter.ready) for drafter in model.drafters] == [("d0", False)]


async def test_status_tells_who_serves(start: Start, target: ScriptedTarget) -> None:
    """Coordinator, target and drafter, and how many requests run."""
    target.script.hold = asyncio.Event()
    front = await start(drafters=(("d0", "127.0.0.1:1"),))
    running = asyncio.ensure_future(generate(front, ask(max_tokens=4)))
    await until(lambda: len(target.running) == 1)
    status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert (status.running, status.waiting, status.accepting) == (1, 0, True)
    told = {actor.name: actor for actor in status.actors}
    assert told["coordinator"].role == "coordinator"
    assert told["target-0"].ready
    assert (told["target-0"].sessions, told["target-0"].capacity) == (1, 4)
    assert not told["d0"].ready
    target.script.hold.set()
    await running
    after = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert (after.running, after.finished) == (0, 1)


async def test_status_is_answered_while_a_target_goes(start: Start, target: ScriptedTarget) -> None:
    """The target is told as not ready; who asked is not left waiting."""
    front = await start()
    target.script.hold_info = asyncio.Event()
    asked = asyncio.ensure_future(front.stub.GetStatus(generation_pb2.GetStatusRequest()))
    await asyncio.sleep(0.1)
    target.hang_up()
    async with asyncio.timeout(60.0):
        status = await asked
    assert [(one.role, one.ready) for one in status.actors] == [
        ("coordinator", True),
        ("target", False),
    ]
