"""Traces of real actors, all in this process, behind real gRPC."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.cluster.front import Serve
from tests.cluster.scripted import Script, ScriptedDrafter, ScriptedTarget
from tests.cluster.served.test_together import Together, lockstep, ready, request, table, together

from outrider.actors.engine.protocol import Logits
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.client.async_client import AsyncClient
from outrider.client.async_trace import AsyncRunningTrace
from outrider.client.connection.errors import InvalidRequest, NotFound, OutriderError, Overloaded
from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_model import DRAFTING, NETWORK, REQUESTS, WORK, Timeline
from outrider.cluster.tracing import trace_call
from outrider.cluster.tracing.trace_source import TraceRequests, follow
from outrider.v1 import generation_pb2, sampling_pb2, target_pb2_grpc, trace_pb2

__all__ = ["lockstep", "table", "together"]

TOKENS = 60


def named(name: str, *, max_tokens: int = TOKENS) -> generation_pb2.GenerateRequest:
    """A request with a name."""
    made = request(1, max_tokens=max_tokens)
    made.request_id = name
    return made


async def traced(
    together: Together, *, nodes: bool = False, foreign: bool = False, tokens: int = TOKENS
) -> Timeline:
    """The trace of the request `mine`, with another beside it if asked for."""
    async with AsyncClient(together.front.address) as client:
        trace = client.start_trace(request_id="mine", seconds=30.0, nodes=nodes)
        await trace.wait_started()
        asked = [together.generate(named("mine", max_tokens=tokens))]
        if foreign:
            asked.append(together.generate(named("somebody-elses")))
        await asyncio.gather(*asked)
        return await trace.result()


async def came(trace: AsyncRunningTrace) -> None:
    """Waits until the client has the records of a text that is over."""
    async with asyncio.timeout(60.0):
        while summarise(trace._reception.timeline()).rounds.committed < TOKENS:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("lockstep", [True])
async def test_one_request_from_its_arrival_to_its_end(together: Together) -> None:
    """Coordinator, target, drafter and network are on it; its rounds give its tokens; each node has its fate."""
    timeline = await traced(together, nodes=True, foreign=True, tokens=400)
    summary = summarise(timeline)
    assert timeline.ended == "request"
    assert timeline.request_id == "mine"
    assert [source.role for source in timeline.sources].count("coordinator") == 1
    assert {source.name for source in timeline.sources} == {"coordinator", "target-0", "draft-0"}
    assert summary.num_lost == 0
    assert summary.clock_error_us is not None

    whole = [one for one in timeline.slices if "outcome" in one.args]
    assert [(one.args["name"], one.args["outcome"]) for one in whole] == [("mine", "completed")]
    assert summary.requests[0].committed == 400 == summary.rounds.committed
    assert sum(summary.requests[0].spent_us.values()) == pytest.approx(summary.requests[0].wall_us)
    tracks = {one.track for one in timeline.slices if one.process == REQUESTS}
    assert all("mine" in track for track in tracks), "sessions of others are left out"
    names = {one.name for one in timeline.slices if "mine" in one.track}
    assert {"tokenise", "queue", "open", "prefill", "verify"} <= names

    fates = summary.fates_by_drafter["draft-0"]
    assert fates.accepted > 0
    marks = [mark.name for mark in timeline.marks]
    for name, number in (
        ("accepted", fates.accepted),
        ("rejected", fates.rejected),
        ("foreseen", fates.foreseen),
        ("never chosen", fates.never_chosen),
    ):
        assert marks.count(name) == number
    decided = fates.verified + fates.foreseen + fates.never_chosen
    assert fates.proposed == fates.stale + fates.refused + decided + fates.held
    assert fates.held == 0, "the request is over, so every node is decided"

    kinds = {arrow.name for arrow in timeline.arrows}
    assert {"candidates", "verdicts"} <= kinds
    for arrow in timeline.arrows:
        assert arrow.sent.args["number"] == arrow.received.args["number"]
        assert arrow.sent.args["bytes"] == arrow.received.args["bytes"]
    error_us = summary.clock_error_us
    flights = [one for one in timeline.slices if one.process == NETWORK]
    assert all(one.args["latency_us"] >= -error_us for one in flights)


@pytest.mark.parametrize("lockstep", [True])
@pytest.mark.parametrize(
    "verifier", [sampling_pb2.VERIFIER_COUPLED, sampling_pb2.VERIFIER_MCSD_WITH_REPLACEMENT]
)
async def test_the_trace_tells_what_the_completion_tells(
    together: Together, verifier: sampling_pb2.Verifier.ValueType
) -> None:
    """Rounds and fates, counted from the records, are the service's own statistics; for frozen trees, too."""
    accepted = 0
    # A busy machine may let the target finish before the drafter has come: then the next request shows it.
    for attempt in range(8):
        asked = named(f"mine-{attempt}", max_tokens=200)
        asked.speculation.verifier = verifier
        told = generation_pb2.SpeculationStats()
        async with AsyncClient(together.front.address) as client:
            trace = client.start_trace(request_id=asked.request_id, seconds=60.0)
            await trace.wait_started()
            async for message in together.front.stub.Generate(asked, timeout=60.0):
                if message.HasField("completion"):
                    told = message.completion.speculation
            summary = summarise(await trace.result())
        fates, rounds = summary.fates, summary.rounds
        assert (fates.verified, fates.accepted) == (told.verified, told.accepted)
        assert rounds.with_candidates == told.rounds
        assert rounds.rounds == told.rounds + told.plain_passes - 1, (
            "all but the prompt's last pass"
        )
        decided = fates.verified + fates.foreseen + fates.never_chosen
        assert fates.proposed == fates.stale + fates.refused + decided + fates.held
        accepted += told.accepted
        if accepted:
            break
    assert accepted > 0


@pytest.mark.parametrize("lockstep", [True])
async def test_the_whole_service_for_a_time(together: Together) -> None:
    """Every moment of every worker has a cause; names of requests are shortened, for they are the right to abort."""
    async with AsyncClient(together.front.address) as client:
        trace = client.start_trace(seconds=2.0)
        await trace.wait_started()
        await asyncio.gather(
            *(together.generate(named(f"request-{number}-of-many")) for number in range(4)),
            *(together.generate(named(name)) for name in ("r", "r-12345")),
        )
        timeline = await trace.result()
    summary = summarise(timeline)
    assert timeline.ended == "time"
    assert {actor.process for actor in summary.actors} == {"target-0", "draft-0"}
    for actor in summary.actors:
        assert sum(actor.spent_us.values()) == pytest.approx(actor.wall_us)
        assert actor.wall_us >= 1.5e6, "the trace covers the time that was asked for"
        assert actor.busy > 0
        assert actor.spent_us["no session"] > 0
    shown = {one.name for one in summary.requests}
    assert shown <= {"request-…", "…", "r-1…"}
    assert {WORK, DRAFTING} <= {one.track for one in timeline.slices}


async def test_a_request_that_runs_already(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace may begin in the middle: it knows the session, and what the workers are doing."""
    worker, may_hurry = together.target.worker, threading.Event()
    assert worker is not None
    forward = worker.state.engine.forward

    def slowed(batch: Any) -> Logits:
        may_hurry.wait(0.1)
        return forward(batch)

    monkeypatch.setattr(worker.state.engine, "forward", slowed)
    async with AsyncClient(together.front.address) as client:
        running = asyncio.ensure_future(together.generate(named("long", max_tokens=450)))
        async with asyncio.timeout(60.0):
            while (await client.status()).running == 0:  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.01)
        trace = client.start_trace(request_id="long", seconds=60.0)
        await trace.wait_started()
        may_hurry.set()
        timeline = await trace.result()
        await running
    summary = summarise(timeline)
    assert timeline.ended == "request"
    assert summary.rounds.rounds > 0
    assert 0 < summary.requests[0].committed <= 450


async def test_a_request_that_never_comes(together: Together) -> None:
    """It is not found, within the time."""
    async with AsyncClient(together.front.address) as client:
        with pytest.raises(NotFound, match="nobody"):
            await client.trace(request_id="nobody", seconds=0.3)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("seconds", trace_pb2.TraceRequest(seconds=0.0)),
        ("seconds", trace_pb2.TraceRequest(seconds=-1.0)),
        ("seconds", trace_pb2.TraceRequest(seconds=601.0)),
        ("seconds", trace_pb2.TraceRequest(seconds=float("nan"))),
        ("seconds", trace_pb2.TraceRequest(seconds=float("inf"))),
        ("request_id", trace_pb2.TraceRequest(seconds=1.0, request_id="no spaces")),
        (
            "max_records",
            trace_pb2.TraceRequest(seconds=1.0, max_records=trace_call.MAX_RECORDS + 1),
        ),
    ],
)
async def test_nonsense_is_refused_by_name(
    serve: Serve, field: str, wrong: trace_pb2.TraceRequest
) -> None:
    """Before anything is recorded, and naming the field."""
    front = await serve()
    call = front.stub.Trace(wrong, timeout=60.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in (caught.value.details() or "")


async def test_nonsense_is_refused_by_the_client_too() -> None:
    """Nothing is sent."""
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(InvalidRequest, match="seconds"):
            await client.trace(seconds=0)
        with pytest.raises(InvalidRequest):
            await client.trace(max_records=-1)


async def test_few_traces_at_a_time(serve: Serve) -> None:
    """One too many is told to come later, and ended traces make room."""
    front = await serve()
    async with AsyncClient(front.address) as client:
        running = [client.start_trace(seconds=30.0) for _ in range(trace_call.MAX_TRACES)]
        for trace in running:
            await trace.wait_started()
        with pytest.raises(Overloaded):
            await client.trace(seconds=0.1)
        for trace in running:
            await trace.stop()
            assert (await trace.result()).ended == "it was stopped"
        async with asyncio.timeout(60.0):
            while True:
                try:
                    assert (await client.trace(seconds=0.1)).ended == "time"
                    break
                except Overloaded:
                    await asyncio.sleep(0.05)


async def test_as_many_records_as_allowed(together: Together) -> None:
    """The trace ends when it is full, and says so."""
    async with AsyncClient(together.front.address) as client:
        trace = client.start_trace(seconds=30.0, max_records=20)
        await trace.wait_started()
        await together.generate(named("mine"))
        timeline = await trace.result()
    assert timeline.ended == "records"


async def test_nobody_records_after_the_end(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks are off again: a later request leaves nothing, and costs nothing."""
    await traced(together)
    recorders = (together.target.recorder, together.drafter.recorder)
    async with asyncio.timeout(60.0):
        while any(recorder.is_on for recorder in recorders):  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0.02)
    spans: list[trace_pb2.TraceSpan] = []
    for recorder in recorders:
        monkeypatch.setattr(recorder, "add", spans.append)
    await together.generate(named("later"))
    assert spans == []


async def test_a_target_that_dies_does_not_hold_the_trace(together: Together) -> None:
    """What it had told is kept, it is named as gone, and the trace ends in time."""
    async with AsyncClient(together.front.address) as client:
        trace = client.start_trace(seconds=5.0)
        await trace.wait_started()
        await together.generate(named("mine"))
        await came(trace)
        await together.target.stop(0.0)
        async with asyncio.timeout(60.0):
            timeline = await trace.result()
    summary = summarise(timeline)
    assert timeline.ended == "time"
    assert list(summary.gone) == ["target-0"]
    assert summary.rounds.committed == TOKENS
    target = next(source for source in timeline.sources if source.role == "target")
    assert target.end_us < timeline.duration_us


class Recording(ScriptedTarget):
    """Says that it records, and then nothing."""

    async def Trace(  # type: ignore[override]  # a coroutine that writes, as grpc.aio allows
        self, request_iterator: AsyncIterator[trace_pb2.TraceCommand], context: Any
    ) -> None:
        """As a target that has nothing to tell."""
        await context.write(trace_pb2.TraceReport(source=trace_pb2.TraceSource(name=self.name)))
        await asyncio.sleep(60.0)


async def test_a_channel_that_is_closed_during_a_trace_is_a_source_lost() -> None:
    """And the actor is asked again once its link has another."""
    target, outbox = Recording(Script()), TraceRequests()
    await target.start()
    channel = internal_channel(target.address)
    link: Any = SimpleNamespace(stub=target_pb2_grpc.TargetServiceStub(channel))
    following = asyncio.create_task(follow(link, outbox, time.monotonic_ns, nodes=False))
    try:
        async with asyncio.timeout(60.0):
            assert (await outbox.get()).source.name == target.name  # type: ignore[union-attr]
            link.stub = None
            await channel.close()
            lost = await outbox.get()
            assert lost is not None
            assert "closed" in lost.source_lost
            channel = internal_channel(target.address)
            link.stub = target_pb2_grpc.TargetServiceStub(channel)
            assert (await outbox.get()).number == 2  # type: ignore[union-attr]
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await channel.close()
        await target.stop()


async def test_actors_of_an_old_release(serve: Serve) -> None:
    """Who does not know the call costs their own tracks only."""
    target, drafter = ScriptedTarget(Script()), ScriptedDrafter()
    front = await serve(
        targets=(await target.start(),), drafters=((drafter.name, await drafter.start()),)
    )
    try:
        await ready(front, drafters=1)
        async with AsyncClient(front.address) as client:
            trace = client.start_trace(request_id="mine", seconds=20.0)
            await trace.wait_started()
            await client.generate("text", request_id="mine")
            timeline = await trace.result()
    finally:
        await target.stop()
        await drafter.stop()
    assert [source.role for source in timeline.sources] == ["coordinator"]
    assert {"queue", "open"} <= {one.name for one in timeline.slices}


@pytest.mark.parametrize("is_left", [False, True])
async def test_who_still_waits_for_a_slot_waits_in_the_queue(serve: Serve, is_left: bool) -> None:
    """Its time is that of the queue, whether the trace ends while it waits, or the client leaves."""
    target, released = ScriptedTarget(Script()), asyncio.Event()
    target.script.num_slots, target.script.hold = 1, released
    front = await serve(targets=(await target.start(),))
    try:
        await ready(front, drafters=0)
        async with AsyncClient(front.address) as client:
            first = asyncio.create_task(client.generate("text"))
            async with asyncio.timeout(60.0):
                while not target.opens:  # noqa: ASYNC110 - has no event
                    await asyncio.sleep(0.01)
            trace = client.start_trace(request_id="mine", seconds=60.0 if is_left else 2.0)
            await trace.wait_started()
            second = asyncio.create_task(client.generate("text", request_id="mine"))
            async with asyncio.timeout(60.0):
                while (await client.status()).waiting == 0:  # noqa: ASYNC110 - has no event
                    await asyncio.sleep(0.01)
            if is_left:
                second.cancel()
            timeline = await trace.result()
            released.set()
            await asyncio.gather(first, second, return_exceptions=True)
    finally:
        await target.stop()
    (one,) = summarise(timeline).requests
    assert one.outcome == ("cancelled" if is_left else "running")
    assert one.spent_us["queue"] > 0.0
    ended_us = [part.end_us for part in timeline.slices if part.name == "queue"]
    whole = next(part for part in timeline.slices if "outcome" in part.args)
    assert ended_us == [pytest.approx(whole.end_us, abs=10_000.0)]


async def test_the_coordinator_that_dies_leaves_what_came(together: Together) -> None:
    """The client keeps what it has, and says that the end is missing."""
    async with AsyncClient(together.front.address) as client:
        trace = client.start_trace(seconds=60.0)
        await trace.wait_started()
        await together.generate(named("mine"))
        await came(trace)
        await together.front.coordinator.stop(0.0)
        async with asyncio.timeout(60.0):
            timeline = await trace.result()
    assert timeline.ended.startswith("the stream broke")
    assert summarise(timeline).rounds.committed == TOKENS


async def test_nobody_answers() -> None:
    """An error by its cause, at once."""
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(OutriderError):
            await client.trace(seconds=0.5)
