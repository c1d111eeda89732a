"""Two coordinators of one service: one target's slots for both, one port, one account of the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.front import Front, Serve

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.roster.roster import Member, Role, Roster
from outrider.v1 import generation_pb2, sampling_pb2

NUM_SLOTS = 4
NAMES = ("coordinator-0", "coordinator-1")


class Two:
    """The coordinators, and what they may hold together."""

    def __init__(self, fronts: list[Front], target: TargetServer) -> None:
        self.fronts = fronts
        self.target = target

    async def status(self, which: int) -> generation_pb2.GetStatusResponse:
        """What one of them tells of the service."""
        request = generation_pb2.GetStatusRequest()
        return await self.fronts[which].stub.GetStatus(request, timeout=60.0)

    async def accepting(self, which: int) -> None:
        """Waits until one of them takes requests."""
        async with asyncio.timeout(60.0):
            while True:
                if (await self.status(which)).accepting:
                    return
                await asyncio.sleep(0.02)

    async def until(self, which: int, *, running: int, waiting: int) -> None:
        """Waits until one of them alone runs and queues so many."""
        local = generation_pb2.GetStatusRequest(is_local=True)
        async with asyncio.timeout(60.0):
            while True:
                told = await self.fronts[which].stub.GetStatus(local)
                if (told.running, told.waiting) == (running, waiting):
                    return
                await asyncio.sleep(0.02)


@pytest.fixture
async def two(tmp_path: Path, serve: Serve) -> AsyncIterator[Two]:
    """A target with four slots, known to both, and each known to the other."""
    file = tmp_path / "table.npz"
    random_table(16, 1, seed=5, concentration=0.1).save(file)
    target = TargetServer(
        TargetSettings(
            name="t",
            incarnation=1,
            model_name="table",
            engine=EngineSettings(
                model=f"tabular:{file}",
                # A text of `ENDLESS` tokens is not over before it is cancelled, however long that takes.
                device="emulated:2ms",
                num_slots=NUM_SLOTS,
                max_context=1 << 16,
                num_threads=1,
            ),
        )
    )
    address = await target.start()
    fronts = [await serve(codec=None, name=name, targets=(address,)) for name in NAMES]
    members = tuple(
        Member(
            name=name,
            role=Role.COORDINATOR,
            address=front.address,
            incarnation=1,
            model="table",
            pid=1,
            node_id="n",
            internal_address=front.coordinator.internal_address,
        )
        for name, front in zip(NAMES, fronts, strict=True)
    )
    target_member = Member(
        name="t",
        role=Role.TARGET,
        address=address,
        incarnation=1,
        model="table",
        pid=1,
        node_id="n",
    )
    for front in fronts:
        await front.coordinator.update_roster(Roster(version=1, members=(*members, target_member)))
    made = Two(fronts, target)
    for which in (0, 1):
        await made.accepting(which)
    yield made
    await target.stop(0.0)


def request(seed: int, max_tokens: int, name: str = "") -> generation_pb2.GenerateRequest:
    """A text of so many tokens."""
    return generation_pb2.GenerateRequest(
        request_id=name,
        tokens=generation_pb2.TokenIds(ids=[2, 3, 4]),
        sampling=sampling_pb2.SamplingOptions(seed=seed, max_tokens=max_tokens, ignore_eos=True),
    )


async def text(
    front: Front, asked: generation_pb2.GenerateRequest, began: asyncio.Event | None = None
) -> list[int]:
    """The output of a request; sets the event when it has begun to come."""
    tokens: list[int] = []
    async for message in front.stub.Generate(asked, timeout=120.0):
        tokens.extend(token.id for token in message.chunk.tokens)
        if tokens and began is not None:
            began.set()
    return tokens


ENDLESS = 60_000
"""Tokens of a text that is cancelled before it is through."""


def endless(front: Front, count: int) -> list[asyncio.Task[list[int]]]:
    """Texts that hold their slots until they are cancelled."""
    return [asyncio.create_task(text(front, request(seed, ENDLESS))) for seed in range(count)]


async def end(tasks: list[asyncio.Task[list[int]]]) -> None:
    """Cancels texts."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_with_all_the_work_may_have_all_slots(two: Two) -> None:
    """What the other does not use is not kept free for it."""
    tasks = endless(two.fronts[0], NUM_SLOTS)
    await two.until(0, running=NUM_SLOTS, waiting=0)
    await end(tasks)


async def test_slots_are_shared_once_both_have_work(two: Two) -> None:
    """The second one waits for a slot that is not there without failing anyone; as requests of the first end, each has its
    half, whatever the first has in its queue."""
    first = endless(two.fronts[0], 3 * NUM_SLOTS)
    await two.until(0, running=NUM_SLOTS, waiting=2 * NUM_SLOTS)
    second = endless(two.fronts[1], 2 * NUM_SLOTS)
    await two.until(1, running=0, waiting=2 * NUM_SLOTS)
    for task in first[:NUM_SLOTS]:  # Those that run end, one after the other.
        await end([task])
        await asyncio.sleep(0.1)
    half = NUM_SLOTS // 2
    await two.until(1, running=half, waiting=2 * NUM_SLOTS - half)
    await two.until(0, running=half, waiting=2 * NUM_SLOTS - half)
    await end(second)
    await two.until(0, running=NUM_SLOTS, waiting=2 * NUM_SLOTS - NUM_SLOTS)
    await end(first)


async def test_texts_are_the_same_whoever_is_asked(two: Two) -> None:
    """More at once than slots, through both."""
    asked = [request(seed, 40) for seed in range(3 * NUM_SLOTS)]
    found = await asyncio.gather(
        *(text(two.fronts[index % 2], one) for index, one in enumerate(asked))
    )
    again = [await text(two.fronts[(index + 1) % 2], one) for index, one in enumerate(asked)]
    assert found == again


async def test_each_tells_of_the_whole(two: Two) -> None:
    """Requests of both are counted, and both are named; one that is gone is named as missing."""
    tasks = endless(two.fronts[0], 1) + endless(two.fronts[1], 2)
    await two.until(0, running=1, waiting=0)
    await two.until(1, running=2, waiting=0)
    for which in (0, 1):
        told = await two.status(which)
        assert told.running == 3
        sessions = {actor.name: actor.sessions for actor in told.actors}
        assert (sessions[NAMES[0]], sessions[NAMES[1]]) == (1, 2)
    await end(tasks)
    await two.fronts[1].coordinator.stop(0.0)
    told = await two.status(0)
    (missing,) = [actor for actor in told.actors if actor.name == NAMES[1]]
    assert not missing.ready
    assert missing.problem


async def test_a_request_is_aborted_through_any_of_them(two: Two) -> None:
    """A client behind a balancer does not know who runs it."""
    began = asyncio.Event()
    task = asyncio.create_task(text(two.fronts[0], request(1, ENDLESS, name="mine"), began))
    async with asyncio.timeout(60.0):
        await began.wait()
    abort = generation_pb2.AbortRequest(request_id="mine")
    assert (await two.fronts[1].stub.Abort(abort, timeout=60.0)).was_running
    assert 0 < len(await task) < ENDLESS
    assert not (await two.fronts[1].stub.Abort(abort, timeout=60.0)).was_running


async def test_a_request_that_two_of_them_run_is_aborted_at_both(two: Two) -> None:
    """As when a client resumes at another one before the first has noticed that the stream is gone."""
    begun = [asyncio.Event() for _ in two.fronts]
    tasks = [
        asyncio.create_task(text(front, request(1, ENDLESS, name="mine"), began))
        for front, began in zip(two.fronts, begun, strict=True)
    ]
    async with asyncio.timeout(60.0):
        for began in begun:
            await began.wait()
    abort = generation_pb2.AbortRequest(request_id="mine")
    assert (await two.fronts[0].stub.Abort(abort, timeout=60.0)).was_running
    for task in tasks:
        assert 0 < len(await task) < ENDLESS


async def test_they_may_share_a_port_and_strangers_may_not(two: Two, serve: Serve) -> None:
    """A second one of the same service joins at the first one's address; another service is told that the port is taken."""
    address = two.fronts[0].address
    joined = await serve(codec=None, name="coordinator-2", listen=address, shares_port=True)
    assert joined.address == address
    with pytest.raises(OSError, match="is the port taken"):
        await serve(codec=None, name="stranger", listen=address)
