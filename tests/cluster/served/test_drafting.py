"""Attaching drafters, over real gRPC, with scripted drafters and a scripted target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
import pytest
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import Script, ScriptedDrafter, ScriptedTarget, scripted_token

from outrider.actors.speculation.options import Speculation
from outrider.cluster.roster.roster import Member, Role, Roster
from outrider.v1 import generation_pb2, sampling_pb2, target_pb2

PROMPT = [97, 98, 99]
LENGTH = 40


@pytest.fixture
async def target() -> AsyncIterator[ScriptedTarget]:
    """A target that waits for the test before each round."""
    made = ScriptedTarget(Script(hold=asyncio.Event()))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def drafters() -> AsyncIterator[list[ScriptedDrafter]]:
    """Two drafters that serve."""
    made = [ScriptedDrafter("d0"), ScriptedDrafter("d1")]
    for drafter in made:
        await drafter.start()
    yield made
    for drafter in made:
        await drafter.stop()


def names_in(steer: target_pb2.SteerSession | target_pb2.OpenSession) -> list[str]:
    """Whose candidates a target is to take."""
    return [one.name for one in steer.drafters]


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(60.0):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def grown(items: Sequence[object], count: int) -> None:
    """Waits for a list to have so many items."""
    await until(lambda: len(items) == count)


async def front_of(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter], limit: int | None = None
) -> Front:
    """A coordinator that is connected to all of them."""
    front = await serve(
        targets=(target.address,),
        drafters=tuple((drafter.name, drafter.address) for drafter in drafters),
        speculation=Speculation(drafters_at_work=limit),
    )
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            up = sum(actor.ready or "tokenizer" in actor.problem for actor in status.actors)
            if up == 2 + len(drafters):
                return front
            await asyncio.sleep(0.01)


def ask(**speculation: object) -> generation_pb2.GenerateRequest:
    """A request of token ids."""
    return generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=PROMPT),
        sampling=sampling_pb2.SamplingOptions(seed=3, max_tokens=LENGTH, temperature=0.5),
        speculation=speculation,  # type: ignore[arg-type]  # a mapping serves as a message
    )


async def run(front: Front, request: generation_pb2.GenerateRequest) -> list[int]:
    """Output token ids."""
    ids: list[int] = []
    async for message in front.stub.Generate(request, timeout=60.0):
        ids.extend(token.id for token in message.chunk.tokens)
    return ids


def release(target: ScriptedTarget) -> None:
    """Lets the target decode to the end."""
    assert target.script.hold is not None
    target.script.hold.set()


EXPECTED = [scripted_token(PROMPT, 3, at) for at in range(LENGTH)]


async def test_drafters_are_told_all_they_need(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """Where the session is, its tokens, its noise; and when it is over."""
    front = await front_of(serve, target, drafters)
    running = asyncio.ensure_future(run(front, ask(max_nodes=9)))
    await until(lambda: all(drafter.attached for drafter in drafters))
    attach, opened = drafters[0].attached[0], target.opens[0]
    assert attach.target_address == target.address
    assert attach.target_incarnation == target.incarnation
    assert attach.handle == 1000 + opened.session
    assert list(attach.tokens) == PROMPT
    assert attach.prompt_length == len(PROMPT)
    assert attach.sampling == opened.sampling
    assert attach.speculation.max_nodes == 9
    assert names_in(opened) == ["d0", "d1"]
    release(target)
    assert await running == EXPECTED
    await until(lambda: all(drafter.detached == [attach.session] for drafter in drafters))
    assert target.steers == []


async def test_drafters_are_attached_once_they_are_wanted(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """Where they do not pay attaching is work for nothing. Those at work stay; a plain request never has any."""
    front = await front_of(serve, target, drafters)
    first = asyncio.ensure_future(run(front, ask()))
    await until(lambda: all(len(drafter.attached) == 1 for drafter in drafters))
    target.want_drafters(False)
    others = [asyncio.ensure_future(run(front, ask(enabled=enabled))) for enabled in (True, False)]
    await grown(target.opens, 3)
    # A request that comes after them has gone all the way through, so theirs have been dealt with.
    release(target)
    assert await run(front, ask(enabled=False)) == EXPECTED
    assert await first == EXPECTED
    assert [await other for other in others] == [EXPECTED, EXPECTED]
    assert all(len(drafter.attached) == 1 for drafter in drafters)

    target.script.hold = asyncio.Event()
    others = [asyncio.ensure_future(run(front, ask(enabled=enabled))) for enabled in (True, False)]
    await grown(target.opens, 6)
    target.want_drafters(True)
    await until(lambda: all(len(drafter.attached) == 2 for drafter in drafters))
    drafted = {one.session for one in target.opens[4:] if one.speculation.enabled}
    assert {drafter.attached[1].session for drafter in drafters} == drafted
    release(target)
    assert [await other for other in others] == [EXPECTED, EXPECTED]
    assert target.steers == []
    await until(lambda: all(len(drafter.detached) == 2 for drafter in drafters))


async def test_a_new_stream_forgets_what_the_old_one_said(
    serve: Serve, drafters: list[ScriptedDrafter]
) -> None:
    """A target that has started again wants drafters until it says otherwise, and a session moved there has them."""
    target = ScriptedTarget(Script(hold=asyncio.Event(), wants_drafters=False, break_after=1))
    await target.start()
    front = await front_of(serve, target, drafters)
    running = asyncio.ensure_future(run(front, ask()))
    await grown(target.opens, 1)
    assert all(not drafter.attached for drafter in drafters)
    target.script.wants_drafters = True
    release(target)
    assert await running == EXPECTED
    await until(lambda: all(len(drafter.attached) == 1 for drafter in drafters))
    await target.stop()


async def test_plain_requests_attach_nobody(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """Speculation off means no drafter is asked."""
    front = await front_of(serve, target, drafters)
    release(target)
    assert await run(front, ask(enabled=False)) == EXPECTED
    assert [drafter.attached for drafter in drafters] == [[], []]
    assert names_in(target.opens[0]) == []


async def test_only_the_named_drafters_work(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """In the order of the request."""
    front = await front_of(serve, target, drafters)
    running = asyncio.ensure_future(run(front, ask(drafters=["d1"])))
    await until(lambda: bool(drafters[1].attached))
    release(target)
    await running
    assert drafters[0].attached == []
    assert names_in(target.opens[0]) == ["d1"]


async def test_a_drafter_with_another_tokenizer_is_refused_by_name_and_left_out(
    serve: Serve, target: ScriptedTarget
) -> None:
    """Asked for by name it is a clear error; left to the service it is not used."""
    alien = ScriptedDrafter("alien", tokenizer="words")
    await alien.start()
    front = await front_of(serve, target, [alien])
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await run(front, ask(drafters=["alien"]))
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (failed.value.details() or "").startswith("speculation.drafters[0] 'alien' cannot serve")
    release(target)
    assert await run(front, ask()) == EXPECTED
    assert alien.attached == []
    (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert not model.drafters[0].ready
    assert "tokenizer (words) is not that of" in model.drafters[0].problem
    await alien.stop()


async def test_a_drafter_that_dies_is_steered_away_from_and_rejoins(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """The target hears who is left, and again who is back; the text is the same."""
    front = await front_of(serve, target, drafters)
    running = asyncio.ensure_future(run(front, ask()))
    await until(lambda: all(drafter.attached for drafter in drafters))
    await drafters[0].stop()
    await until(lambda: bool(target.steers))
    assert names_in(target.steers[-1]) == ["d1"]
    await drafters[0].start(drafters[0].address)
    await until(lambda: len(drafters[0].attached) == 2)
    await until(lambda: names_in(target.steers[-1]) == ["d0", "d1"])
    release(target)
    assert await running == EXPECTED
    assert front.counted("link_breaks")["d0"] == 1


async def test_a_drafter_that_refuses_is_left_out(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """The session goes on without it, and it is not asked again until it has started again."""
    drafters[0].refuse = (grpc.StatusCode.FAILED_PRECONDITION, "not mine")
    front = await front_of(serve, target, drafters)
    running = asyncio.ensure_future(run(front, ask()))
    await until(lambda: bool(target.steers))
    assert names_in(target.steers[-1]) == ["d1"]
    assert front.counted("drafters_refused")["d0"] == 1
    await drafters[0].stop()
    drafters[0].refuse = None
    await drafters[0].start(drafters[0].address)
    await until(lambda: bool(drafters[0].attached))
    release(target)
    assert await running == EXPECTED


async def test_a_full_drafter_is_asked_again(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """A refusal for lack of room is not for ever."""
    drafters[0].refuse = (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    front = await front_of(serve, target, drafters[:1])
    running = asyncio.ensure_future(run(front, ask()))
    await until(lambda: bool(target.steers))
    drafters[0].refuse = None
    await until(lambda: bool(drafters[0].attached))
    release(target)
    assert await running == EXPECTED


async def test_another_drafter_takes_the_place_of_one_that_died(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """With one at a time, the spare one steps in, and the names keep their places."""
    front = await front_of(serve, target, drafters, limit=1)
    running = asyncio.ensure_future(run(front, ask()))
    await until(lambda: bool(drafters[0].attached))
    assert drafters[1].attached == []
    await drafters[0].stop()
    await until(lambda: bool(drafters[1].attached))
    assert names_in(target.opens[0]) == ["d0", "d1"]
    await until(lambda: names_in(target.steers[-1]) == ["d1"])
    release(target)
    assert await running == EXPECTED


async def test_one_replica_of_a_drafter_works_for_a_text(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """The roster tells which drafters are of one entry. Texts are shared among them, and another one steps in for one that died."""
    front = await front_of(serve, target, drafters)
    members = tuple(
        Member(
            name=drafter.name,
            role=Role.DRAFTER,
            address=drafter.address,
            incarnation=1,
            model="draft",
            pid=1,
            node_id="",
        )
        for drafter in drafters
    )
    await front.coordinator.update_roster(Roster(version=1, members=members))
    running = [asyncio.ensure_future(run(front, ask())) for _ in range(4)]
    await grown(target.opens, 4)
    await until(lambda: sum(len(drafter.attached) for drafter in drafters) == 4)
    assert [len(drafter.attached) for drafter in drafters] == [2, 2]
    texts = [{attach.session for attach in drafter.attached} for drafter in drafters]
    assert not texts[0] & texts[1]
    await drafters[0].stop()
    await grown(drafters[1].attached, 4)
    assert {attach.session for attach in drafters[1].attached} == texts[0] | texts[1]
    release(target)
    assert [await one for one in running] == [EXPECTED] * 4


async def test_sequences_of_a_request_share_a_drafter_that_reads_siblings(
    serve: Serve, target: ScriptedTarget
) -> None:
    """With one drafter at a time, those of a request go to the same one, however they are spread otherwise; requests go to different ones."""
    drafters = [ScriptedDrafter(f"d{number}", reads_siblings=True) for number in range(2)]
    for drafter in drafters:
        await drafter.start()
    try:
        front = await front_of(serve, target, drafters, limit=1)
        release(target)
        asked = ask()
        asked.sampling.n = 3
        for _ in range(8):
            await run(front, asked)
        await until(lambda: sum(len(drafter.attached) for drafter in drafters) >= 24)
        groups = [{attach.group for attach in drafter.attached} for drafter in drafters]
        assert 0 not in groups[0] | groups[1]
        assert not groups[0] & groups[1]
        assert all(groups)
        assert sum(len(drafter.attached) for drafter in drafters) == 24
    finally:
        for drafter in drafters:
            await drafter.stop()


async def test_a_session_opened_again_is_drafted_again(
    serve: Serve, target: ScriptedTarget, drafters: list[ScriptedDrafter]
) -> None:
    """After the target's stream broke, drafters get the new handle and the tokens so far."""
    target.script.break_after = 3
    front = await front_of(serve, target, drafters[:1])
    release(target)
    assert await run(front, ask()) == EXPECTED
    await until(lambda: len(drafters[0].attached) == 2)
    second = drafters[0].attached[1]
    assert list(second.tokens)[: len(PROMPT)] == PROMPT
    assert list(second.tokens)[len(PROMPT) :] == EXPECTED[: len(second.tokens) - len(PROMPT)]
    assert second.handle == 1000 + target.opens[1].session


async def test_sessions_beyond_a_drafters_slots_wait_for_room(
    serve: Serve, target: ScriptedTarget
) -> None:
    """They are decoded without it meanwhile, and have it in order of arrival as others end; nobody is refused."""
    drafter = ScriptedDrafter("d0", num_slots=1)
    await drafter.start()
    front = await front_of(serve, target, [drafter])
    calls = []
    for count in range(1, 4):
        calls.append(front.stub.Generate(ask(), timeout=60.0))
        await grown(target.opens, count)
    await until(lambda: len(drafter.attached) == 1)
    order = [opened.session for opened in target.opens]
    for ended, call in enumerate(calls, start=1):
        assert [attach.session for attach in drafter.attached] == order[:ended]
        call.cancel()
        await grown(drafter.detached, ended)
        await grown(drafter.attached, min(ended + 1, 3))
    assert drafter.detached == order
    await drafter.stop()


async def test_a_session_that_waits_for_room_takes_another_drafter(
    serve: Serve, target: ScriptedTarget
) -> None:
    """A full drafter does not keep one that has room from the session."""
    full, free = ScriptedDrafter("d0", num_slots=1), ScriptedDrafter("d1")
    for drafter in (full, free):
        await drafter.start()
    front = await front_of(serve, target, [full, free])
    calls = [front.stub.Generate(ask(), timeout=60.0) for _ in range(2)]
    await until(lambda: (len(full.attached), len(free.attached)) == (1, 2))
    second = next(a for a in free.attached if a.session != full.attached[0].session)
    await until(lambda: [names_in(steer) for steer in target.steers] == [["d1"]])
    assert target.steers[0].session == second.session
    for call in calls:
        call.cancel()
    for drafter in (full, free):
        await drafter.stop()
