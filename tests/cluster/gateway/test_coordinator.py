"""The coordinator as a server: readiness, roster, draining, description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs
from tests.cluster.asking import until
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import Script, ScriptedDrafter, ScriptedTarget

from outrider.cluster.roster.roster import Absent, Member, Role, Roster
from outrider.v1 import generation_pb2, sampling_pb2

SERVICE = "outrider.v1.GenerationService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def target() -> AsyncIterator[ScriptedTarget]:
    """A scripted target, serving."""
    made = ScriptedTarget(Script())
    await made.start()
    yield made
    await made.stop()


def member(name: str, role: Role, address: str, drafter: str = "") -> Member:
    """One on the roster; a drafter is one of itself, unless it is a replica of another."""
    model = drafter or name if role is Role.DRAFTER else "scripted"
    return Member(
        name=name, role=role, address=address, incarnation=1, model=model, pid=1, node_id="n"
    )


def roster_of(members: Iterable[Member], *absent: Absent) -> Roster:
    """What the supervisor would tell."""
    return Roster(version=1, members=tuple(members), absent=absent, refused=2, last_refusal="no")


async def healthy(front: Front, status: int) -> None:
    """Waits until the service has this health."""
    stub: Any = health_pb2_grpc.HealthStub(front.channel)
    async with asyncio.timeout(60.0):
        while True:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
            if answer.status == status:
                return
            await asyncio.sleep(0.01)


def ask(max_tokens: int = 8) -> generation_pb2.GenerateRequest:
    """A request."""
    return generation_pb2.GenerateRequest(
        text="abc", sampling=sampling_pb2.SamplingOptions(seed=1, max_tokens=max_tokens)
    )


async def count(front: Front, request: generation_pb2.GenerateRequest) -> int:
    """Number of output tokens."""
    tokens = 0
    async for message in front.stub.Generate(request, timeout=60.0):
        tokens += len(message.chunk.tokens)
    return tokens


async def test_health_follows_the_targets(serve: Serve, target: ScriptedTarget) -> None:
    """Not serving without a target, serving with one, and again when it comes back."""
    front = await serve()
    await healthy(front, NOT_SERVING)
    await front.coordinator.update_roster(roster_of([member("t", Role.TARGET, target.address)]))
    await healthy(front, SERVING)
    await target.stop()
    await healthy(front, NOT_SERVING)
    await target.start(target.address)
    await healthy(front, SERVING)
    assert await count(front, ask()) == 8


async def test_the_roster_brings_and_takes_actors(serve: Serve, target: ScriptedTarget) -> None:
    """New ones are connected to, a moved one is followed, and the dead are forgotten once they are gone."""
    front = await serve()
    drafter = ScriptedDrafter("d")
    old = await drafter.start()
    members = [member("t", Role.TARGET, target.address), member("d", Role.DRAFTER, old)]
    await front.coordinator.update_roster(roster_of(members))
    await healthy(front, SERVING)
    await ready(front, "d", True)
    await drafter.stop()
    await ready(front, "d", False)
    moved = await drafter.start()
    await front.coordinator.update_roster(roster_of([members[0], member("d", Role.DRAFTER, moved)]))
    await ready(front, "d", True)
    await drafter.stop()
    await ready(front, "d", False)
    await front.coordinator.update_roster(roster_of(members[:1]))
    (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert list(model.drafters) == []


async def test_who_left_the_roster_is_forgotten_once_the_stream_breaks(
    serve: Serve, target: ScriptedTarget
) -> None:
    """A node is lost: its leases end before its streams do, and no further roster comes."""
    front = await serve()
    other, drafter = ScriptedTarget(Script(), name="u"), ScriptedDrafter("d")
    there = member("t", Role.TARGET, target.address)
    lost = [
        member("u", Role.TARGET, await other.start()),
        member("d", Role.DRAFTER, await drafter.start()),
    ]
    await front.coordinator.update_roster(roster_of([there, *lost]))
    await named(front, {target.name, "u", "d"})
    await front.coordinator.update_roster(roster_of([there]))
    await named(front, {target.name, "u", "d"})
    await other.stop()
    await drafter.stop()
    await named(front, {target.name})


async def test_what_is_counted_of_an_actor_goes_on_over_its_restarts(serve: Serve) -> None:
    """It comes back at another address, each time by a new link, and in between it is on no roster."""
    front = await serve()
    target, drafter = ScriptedTarget(Script(), name="t"), ScriptedDrafter("d")
    for times in range(3):
        there = [
            member("t", Role.TARGET, await target.start()),
            member("d", Role.DRAFTER, await drafter.start()),
        ]
        await front.coordinator.update_roster(roster_of(there))
        await healthy(front, SERVING)
        await ready(front, "d", True)
        assert front.counted("link_breaks") == {"t": times, "d": times}
        await target.stop()
        await drafter.stop()
        await front.coordinator.update_roster(roster_of([]))
        await named(front, set())
    assert front.counted("link_breaks") == {"t": 3, "d": 3}


async def test_a_stream_that_ends_with_an_actor_that_leaves_has_not_broken(serve: Serve) -> None:
    """Changes, and replicas that follow the load, leave the count of breaks where it is, and warn nobody."""
    front = await serve()
    target, drafter = ScriptedTarget(Script(), name="t"), ScriptedDrafter("d")
    there = [
        member("t", Role.TARGET, await target.start()),
        member("d", Role.DRAFTER, await drafter.start()),
    ]
    await front.coordinator.update_roster(roster_of(there))
    await healthy(front, SERVING)
    await ready(front, "d", True)
    leaving = [replace(one, is_draining=True) for one in there]
    await front.coordinator.update_roster(roster_of(leaving))
    with capture_logs() as lines:
        await target.stop()
        await drafter.stop()
        await front.coordinator.update_roster(roster_of([]))
        await named(front, set())
    assert front.counted("link_breaks") == {"t": 0, "d": 0}
    assert {line["log_level"] for line in lines if line["event"] == "not connected"} == {"info"}


async def named(front: Front, names: set[str]) -> None:
    """Waits until the status names these workers."""
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if {one.name for one in status.actors if one.role != "coordinator"} == names:
                return
            await asyncio.sleep(0.01)


async def ready(front: Front, drafter: str, is_ready: bool) -> None:
    """Waits until a drafter is listed as ready or not."""
    async with asyncio.timeout(60.0):
        while True:
            (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
            if {one.name: one.ready for one in model.drafters}.get(drafter) is is_ready:
                return
            await asyncio.sleep(0.01)


async def test_who_should_be_there_is_named_with_its_reason(
    serve: Serve, target: ScriptedTarget
) -> None:
    """In the status, among the models, and by health; so are refused registrations."""
    front = await serve()
    gone = Absent(
        name="d",
        role=Role.DRAFTER,
        model="draft",
        state="restarting",
        reason="ended: out of memory",
        restarts=11,
    )
    there = member("t", Role.TARGET, target.address)
    await front.coordinator.update_roster(roster_of([there], gone))
    await healthy(front, SERVING)
    status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    (told,) = [actor for actor in status.actors if actor.name == "d"]
    assert (told.role, told.ready, told.model) == ("drafter", False, "draft")
    assert told.problem == "restarting, started again 11 times: ended: out of memory"
    assert (status.refused_registrations, status.last_refusal) == (2, "no")
    (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert [(one.name, one.ready, one.problem) for one in model.drafters] == [
        ("draft", False, told.problem)
    ]
    stub: Any = health_pb2_grpc.HealthStub(front.channel)
    for name, health in (("d", NOT_SERVING), ("t", SERVING)):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health
    await front.coordinator.update_roster(roster_of([there]))
    answer = await stub.Check(health_pb2.HealthCheckRequest(service="d"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_a_request_may_name_a_drafter_that_is_being_started_again(
    serve: Serve, target: ScriptedTarget
) -> None:
    """It is served without it, and joined by it once it is back; one that was given up is refused with the reason."""
    front = await serve()
    there = member("t", Role.TARGET, target.address)
    gone = Absent(
        name="d", role=Role.DRAFTER, model="d", state="restarting", reason="killed", restarts=1
    )
    await front.coordinator.update_roster(roster_of([there], gone))
    await healthy(front, SERVING)
    target.script.hold = asyncio.Event()
    request = ask()
    request.speculation.drafters.append("d")
    running = asyncio.ensure_future(count(front, request))
    await until(lambda: len(target.running) == 1)
    drafter = ScriptedDrafter("d")
    back = member("d", Role.DRAFTER, await drafter.start())
    await front.coordinator.update_roster(roster_of([there, back]))
    await until(lambda: len(drafter.attached) == 1)
    target.script.hold.set()
    assert await running == 8
    await drafter.stop()
    failed = replace(gone, state="failed", reason="cannot start: no file")
    await ready(front, "d", False)
    await front.coordinator.update_roster(roster_of([there], failed))
    with pytest.raises(grpc.aio.AioRpcError, match=r"'d' cannot serve .*cannot start: no file"):
        await count(front, request)


async def test_requests_name_drafters_whichever_replicas_there_are(
    serve: Serve, target: ScriptedTarget
) -> None:
    """One that comes while a request runs takes the place of one that is lost; no replica can be named."""
    front = await serve()
    drafters = {name: ScriptedDrafter(name) for name in ("draft-0", "draft-1", "lookup")}
    there = [member("t", Role.TARGET, target.address)] + [
        member(name, Role.DRAFTER, await one.start(), name.partition("-")[0])
        for name, one in drafters.items()
    ]
    await front.coordinator.update_roster(roster_of([*there[:2], there[3]]))
    await healthy(front, SERVING)
    await ready(front, "draft", True)
    await ready(front, "lookup", True)
    target.script.hold = asyncio.Event()
    request = ask()
    request.speculation.drafters.extend(["lookup", "draft"])
    running = asyncio.ensure_future(count(front, request))
    await until(lambda: len(drafters["draft-0"].attached) == 1)
    opened = target.opens[-1]
    assert {one.name: one.place for one in opened.drafters} == {"lookup": 0, "draft-0": 1}
    await drafters["draft-0"].stop()
    await front.coordinator.update_roster(roster_of([there[0], there[2], there[3]]))
    await until(lambda: len(drafters["draft-1"].attached) == 1)
    await until(
        lambda: (
            {one.name: one.place for one in target.steers[-1].drafters}
            == {"lookup": 0, "draft-1": 1}
        )
    )
    target.script.hold.set()
    assert await running == 8
    away = [
        Absent(name=f"{name}-3", role=Role.DRAFTER, model=name, state=name, reason="", restarts=0)
        for name in ("draft", "other", "further")
    ]
    await front.coordinator.update_roster(roster_of([there[0], there[2], there[3]], *away))
    (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert [(one.name, one.ready, one.problem) for one in model.drafters] == [
        ("lookup", True, ""),
        ("draft", True, ""),
        ("other", False, "other"),
        ("further", False, "further"),
    ]
    request.speculation.drafters[:] = ["draft-1"]
    with pytest.raises(grpc.aio.AioRpcError, match=r"'draft-1' is not a drafter here"):
        await count(front, request)
    for name in ("draft-1", "lookup"):
        await drafters[name].stop()


async def test_an_empty_roster_breaks_no_working_link(serve: Serve, target: ScriptedTarget) -> None:
    """A supervisor that starts again knows nobody yet; what works goes on."""
    front = await serve()
    drafter = ScriptedDrafter("d")
    there = [
        member("t", Role.TARGET, target.address),
        member("d", Role.DRAFTER, await drafter.start()),
    ]
    await front.coordinator.update_roster(roster_of(there))
    await healthy(front, SERVING)
    await ready(front, "d", True)
    await front.coordinator.update_roster(roster_of([]))
    request = ask()
    request.speculation.drafters.append("d")
    assert await count(front, request) == 8
    await drafter.stop()


async def test_a_target_of_another_model_is_not_used(serve: Serve, target: ScriptedTarget) -> None:
    """Its tokens would be another model's."""
    other = ScriptedTarget(Script(num_slots=9), name="t2", model="other")
    await other.start()
    front = await serve(targets=(other.address, target.address), model_name="scripted")
    await healthy(front, SERVING)
    problem = ""
    async with asyncio.timeout(60.0):
        while "holds 'other', this coordinator serves 'scripted'" not in problem:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            (problem,) = (one.problem for one in status.actors if one.address == other.address)
    assert await count(front, ask()) == 8
    assert other.opens == []
    await other.stop()


async def test_who_watches_the_health_is_not_waited_for(serve: Serve) -> None:
    """A watch has no end; requests have one."""
    front = await serve()
    stub: Any = health_pb2_grpc.HealthStub(front.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert (await watch.read()).status == NOT_SERVING
    async with asyncio.timeout(10.0):
        await front.coordinator.stop(30.0)


async def test_draining_lets_running_requests_finish(serve: Serve, target: ScriptedTarget) -> None:
    """The address is free for others at once, and nobody new is served; the running request is served to its end."""
    target.script.hold = asyncio.Event()
    front = await serve(targets=(target.address,))
    await healthy(front, SERVING)
    running = asyncio.ensure_future(count(front, ask(20)))
    async with asyncio.timeout(60.0):
        while True:
            if target.running:
                break
            await asyncio.sleep(0.01)
    stopping = asyncio.ensure_future(front.coordinator.stop(60.0))
    async with asyncio.timeout(60.0):
        while await listens(front.address):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await count(front, ask())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    successor = await serve(targets=(target.address,), listen=front.address)
    target.script.hold.set()
    assert await running == 20
    await stopping
    async with asyncio.timeout(60.0):
        await successor.channel.channel_ready()
    await healthy(successor, SERVING)


async def listens(address: str) -> bool:
    """Whether anybody does."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def test_stopping_cancels_what_outlasts_the_grace(
    serve: Serve, target: ScriptedTarget
) -> None:
    """The call ends with an error, and no session is left at the target."""
    target.script.hold = asyncio.Event()
    front = await serve(targets=(target.address,))
    await healthy(front, SERVING)
    running = asyncio.ensure_future(count(front, ask(20)))
    async with asyncio.timeout(60.0):
        while True:
            if target.running:
                break
            await asyncio.sleep(0.01)
    await front.coordinator.stop(0.05)
    with pytest.raises(grpc.aio.AioRpcError):
        await running
    async with asyncio.timeout(60.0):
        while True:
            if not target.running:
                return
            await asyncio.sleep(0.01)


async def test_the_server_describes_itself(serve: Serve) -> None:
    """Reflection lists the public service; it can be turned off."""
    for is_on in (True, False):
        front = await serve(reflection=is_on)
        channel: Any = front.channel
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(timeout=30.0)
        if is_on:
            await call.write(request)
            answer = await call.read()
            names = {service.name for service in answer.list_services_response.service}
            assert SERVICE in names
        else:
            # Nothing is written: gRPC may tell the failure of a write instead of the refusal.
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call.read()
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_port_that_is_taken_fails_loudly(serve: Serve) -> None:
    """With the address in the message."""
    front = await serve()
    with pytest.raises(OSError, match=front.address):
        await serve(listen=front.address)


async def test_requests_that_have_ended_are_counted(serve: Serve, target: ScriptedTarget) -> None:
    """Each once."""
    front = await serve(targets=(target.address,))
    await healthy(front, SERVING)
    before = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    await count(front, ask())
    after = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert after.finished == before.finished + 1
