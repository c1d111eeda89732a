"""A whole drafter over real gRPC, with scripted targets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.actors.draft.bench import TARGET_TABLE, VOCAB_SIZE, MiniTarget, make_attach
from tests.actors.draft.scripted_target import (
    TIMEOUT_S,
    ScriptedTarget,
    resync_message,
    scripted_target,
    verdict_message,
)

from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_events import (
    Attached,
    AttachSession,
    Ended,
    Event,
    Report,
)
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.v1 import draft_pb2, draft_pb2_grpc, sampling_pb2, target_pb2

PROMPT = [1, 2, 3, 4, 5]


@pytest.fixture
def settings(tmp_path: Path) -> DraftSettings:
    file = tmp_path / "table.npz"
    TARGET_TABLE.save(file)
    engine = EngineSettings(model=f"tabular:{file}", num_slots=2, num_threads=1)
    return DraftSettings(name="draft", incarnation=3, engine=engine)


@asynccontextmanager
async def running(settings: DraftSettings) -> AsyncIterator[tuple[DraftServer, str]]:
    server = DraftServer(settings)
    address = await server.start()
    try:
        yield server, address
    finally:
        await server.stop(0.5)


class Coordinator:
    """A coordinator's stream, by hand."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call: Any = draft_pb2_grpc.DraftServiceStub(channel).Sessions()

    async def say(self, **command: Any) -> None:
        await self.call.write(draft_pb2.DraftCommand(**command))

    async def hear(self) -> draft_pb2.DraftEvent:
        async with asyncio.timeout(TIMEOUT_S):
            event: draft_pb2.DraftEvent = await self.call.read()
            return event

    async def attach(
        self, target: ScriptedTarget, session: int = 1, **changes: Any
    ) -> draft_pb2.DraftEvent:
        """Attaches a session and returns the answer."""
        command = draft_pb2.AttachSession(
            session=session,
            target_address=target.address,
            target_incarnation=5,
            handle=7,
            tokens=PROMPT,
            prompt_length=len(PROMPT),
            sampling=sampling_pb2.SamplingOptions(seed=9, max_tokens=100, temperature=0.8),
        )
        command.MergeFrom(draft_pb2.AttachSession(**changes))
        await self.say(attach=command)
        return await self.hear()


@asynccontextmanager
async def coordinating(address: str, incarnation: int = 1) -> AsyncIterator[Coordinator]:
    async with internal_channel(address) as channel:
        coordinator = Coordinator(channel)
        await coordinator.say(
            hello=target_pb2.Hello(
                protocol_version=PROTOCOL_VERSION, name="coordinator", incarnation=incarnation
            )
        )
        assert (await coordinator.hear()).hello.name == "draft"
        yield coordinator
        coordinator.call.cancel()


async def wait_free(address: str, count: int) -> None:
    """Waits until the drafter says that so many slots are free."""
    async with internal_channel(address) as channel, asyncio.timeout(TIMEOUT_S):
        stub: Any = draft_pb2_grpc.DraftServiceStub(channel)
        free = -1
        while free != count:
            # Another process's state can only be asked for.
            await asyncio.sleep(0.01)
            free = (await stub.GetInfo(draft_pb2.GetDrafterInfoRequest())).num_free_slots


async def test_attached_sessions_draft_the_likely_draws(settings: DraftSettings) -> None:
    """Candidates arrive below the base, follow verdicts, and hold the target's draw if the models agree."""
    sampling = replace(make_attach().sampling, seed=9, max_tokens=100)
    mini = MiniTarget(TARGET_TABLE, make_attach(tokens=PROMPT, sampling=sampling))
    async with (
        scripted_target(vocab_size=VOCAB_SIZE) as target,
        running(settings) as (server, address),
        coordinating(address) as coordinator,
    ):
        assert (await coordinator.attach(target)).attached.session == 1
        assert (await target.hear()).hello.method == "autoregressive"
        assert (await target.hear()).resync.length == len(PROMPT)
        for _ in range(10):
            entry = await target.hear_candidates(mini.length)
            assert (entry.handle, entry.hash) == (7, mini.hash_at(mini.length))
            assert (mini.draw(mini.tokens),) in entry.paths
            # Starving, so that all of the tree is sent for the new base, whatever was sent before.
            target.say.put_nowait(verdict_message(mini.commit(4, starving=True)))
        assert server.stats.committed >= 36


async def test_sessions_know_how_far_their_target_is(
    settings: DraftSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is told the round trip that the handshake took: news for a far target gather."""
    posted: list[Event] = []
    post = DraftWorker.post

    def noted(worker: DraftWorker, event: Event) -> None:
        posted.append(event)
        post(worker, event)

    monkeypatch.setattr(DraftWorker, "post", noted)
    async with (
        scripted_target(vocab_size=VOCAB_SIZE) as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        target.hello_after_s = 0.1
        assert (await coordinator.attach(target)).attached.session == 1
    (attach,) = [event for event in posted if isinstance(event, AttachSession)]
    assert 0.1 <= attach.round_trip_s < 10.0


async def test_a_lost_verdict_is_recovered(settings: DraftSettings) -> None:
    """After a gap the drafter asks, is told, and drafts at the new base."""
    sampling = replace(make_attach().sampling, seed=9, max_tokens=100)
    mini = MiniTarget(TARGET_TABLE, make_attach(tokens=PROMPT, sampling=sampling))
    async with (
        scripted_target() as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        await coordinator.attach(target)
        await target.hear_candidates(len(PROMPT))
        mini.commit(2)
        target.say.put_nowait(verdict_message(mini.commit(2)))
        while not (message := await target.hear()).HasField("resync"):
            pass
        target.say.put_nowait(resync_message(mini.resync(message.resync.length)))
        # What was foreseen may have been sent before, so it is told that nothing is left. Without the text it would ask again.
        target.say.put_nowait(verdict_message(mini.commit(1, starving=True)))
        await target.hear_candidates(mini.length)


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"prompt_length": 77}, grpc.StatusCode.INVALID_ARGUMENT, "prompt_length"),
        ({"target_incarnation": 4}, grpc.StatusCode.FAILED_PRECONDITION, "start 5, not 4"),
        ({"tokens": [999]}, grpc.StatusCode.FAILED_PRECONDITION, "999"),
    ],
)
async def test_attachments_that_cannot_work_are_refused(
    settings: DraftSettings, change: dict[str, Any], code: grpc.StatusCode, word: str
) -> None:
    """Bad input, a restarted target, and tokens that the model does not know are told apart."""
    async with (
        scripted_target(vocab_size=VOCAB_SIZE) as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        refused = (await coordinator.attach(target, **change)).refused
        number: int = code.value[0]
        assert (refused.session, refused.code) == (1, number)
        assert word in refused.message
        assert (await coordinator.attach(target)).attached.session == 1


async def test_a_target_may_refuse_the_drafter(settings: DraftSettings) -> None:
    """The coordinator is told in the target's own words."""
    async with (
        scripted_target(refusal="other vocabulary") as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        refused = (await coordinator.attach(target)).refused
        assert "other vocabulary" in refused.message


async def test_a_full_drafter_refuses(settings: DraftSettings) -> None:
    """The third session of two slots is refused; after a detach it fits."""
    async with (
        scripted_target() as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        for session in (1, 2):
            event = await coordinator.attach(target, session, handle=10 + session)
            assert event.attached.session == session
        refused = (await coordinator.attach(target, 3, handle=13)).refused
        number: int = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert (refused.session, refused.code) == (3, number)
        await coordinator.say(detach=draft_pb2.DetachSession(session=1))
        await coordinator.say(detach=draft_pb2.DetachSession(session=1))
        assert (await coordinator.attach(target, 3, handle=13)).attached.session == 3


async def test_a_session_that_nobody_owns_any_more_is_let_go(
    settings: DraftSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a session comes to be told as it is being attached again: who attached it takes that for the end of this one."""
    async with (
        scripted_target() as target,
        running(settings) as (server, address),
        coordinating(address) as coordinator,
    ):
        servicer = server._servicer
        assert servicer is not None
        deliver = servicer.deliver

        def late(report: Report) -> None:
            if isinstance(report, Attached):
                deliver(Ended(key=report.key, message="it was full"))
            deliver(report)

        monkeypatch.setattr(servicer, "deliver", late)
        assert (await coordinator.attach(target)).detached.session == 1
        await wait_free(address, 2)


async def test_a_broken_target_stream_detaches_its_sessions(settings: DraftSettings) -> None:
    """The coordinator hears why, the slot is free, and attaching again dials again."""
    async with (
        scripted_target() as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        await coordinator.attach(target)
        target.say.put_nowait(None)
        detached = (await coordinator.hear()).detached
        assert detached.session == 1
        assert target.address in detached.message
        await wait_free(address, 2)
        assert (await coordinator.attach(target)).attached.session == 1
        assert target.num_streams == 2


async def test_a_session_closed_by_the_target_is_detached(settings: DraftSettings) -> None:
    """The end of a session at the target frees the slot here."""
    async with (
        scripted_target() as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        await coordinator.attach(target)
        closed = target_pb2.SessionClosed(handle=7)
        target.say.put_nowait(target_pb2.VerdictMessage(closed=closed))
        assert (await coordinator.hear()).detached.session == 1
        await wait_free(address, 2)


async def test_a_broken_coordinator_stream_detaches_its_sessions(settings: DraftSettings) -> None:
    """A coordinator that is gone leaves nothing behind."""
    async with scripted_target() as target, running(settings) as (_, address):
        async with coordinating(address) as coordinator:
            await coordinator.attach(target)
            await wait_free(address, 1)
        await wait_free(address, 2)


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (draft_pb2.DraftCommand(detach=draft_pb2.DetachSession(session=1)), "hello"),
        (draft_pb2.DraftCommand(hello=target_pb2.Hello(protocol_version=9)), "protocol version 9"),
        (
            draft_pb2.DraftCommand(
                hello=target_pb2.Hello(
                    protocol_version=PROTOCOL_VERSION, name="coordinator", incarnation=1
                )
            ),
            "dead",
        ),
    ],
)
async def test_a_wrong_coordinator_is_refused(
    settings: DraftSettings, first: draft_pb2.DraftCommand, word: str
) -> None:
    """No hello, another protocol, or a start that a later one has replaced."""
    async with (
        running(settings) as (_, address),
        coordinating(address, incarnation=2),
        internal_channel(address) as channel,
    ):
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Sessions()
        await call.write(first)
        with pytest.raises(grpc.aio.AioRpcError, match=word) as caught:
            async with asyncio.timeout(TIMEOUT_S):
                await call.read()
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_stopping_tells_everyone_and_leaves_no_thread(settings: DraftSettings) -> None:
    """Coordinators hear that their sessions ended, the streams end, and the worker's thread is gone."""
    async with scripted_target() as target:
        server = DraftServer(settings)
        address = await server.start()
        assert any(thread.name == "draft-worker" for thread in threading.enumerate())
        async with coordinating(address) as coordinator:
            await coordinator.attach(target)
            await server.stop(TIMEOUT_S)
            assert "stopping" in (await coordinator.hear()).detached.message
            assert await coordinator.call.read() is grpc.aio.EOF
        assert all(thread.name != "draft-worker" for thread in threading.enumerate())


async def test_a_method_without_a_model_states_no_vocabulary() -> None:
    """Prompt lookup serves any target, and health and description are answered."""
    settings = DraftSettings(name="draft", incarnation=3, method="prompt_lookup", num_slots=5)
    async with (
        scripted_target(vocab_size=1000, tokenizer_fingerprint="abc") as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
        internal_channel(address) as channel,
    ):
        stub: Any = draft_pb2_grpc.DraftServiceStub(channel)
        info = await stub.GetInfo(draft_pb2.GetDrafterInfoRequest())
        assert (info.vocab_size, info.num_slots, info.method) == (0, 5, "prompt_lookup")
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        event = await coordinator.attach(target, tokens=[1, 2, 3])
        assert event.attached.session == 1
        entry = await target.hear_candidates(8)
        assert entry.tokens[:2] == (4, 5)


async def test_a_method_without_a_model_refuses_verifiers_that_need_one() -> None:
    """A session whose verifier needs draft probabilities is refused at the attachment, with what to do."""
    settings = DraftSettings(name="draft", incarnation=3, method="prompt_lookup")
    async with (
        scripted_target() as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        options = sampling_pb2.SpeculationOptions(verifier=sampling_pb2.VERIFIER_TRAVERSAL)
        refused = (await coordinator.attach(target, speculation=options)).refused
        number: int = grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert (refused.session, refused.code) == (1, number)
        assert "speculation.verifier is traversal" in refused.message
        assert "choose one of these, or another drafter" in refused.message


async def test_a_model_draws_frozen_trees(settings: DraftSettings) -> None:
    """The tree of a session that wants one comes frozen, with its laws, in the shape that was asked for."""
    mini = MiniTarget(TARGET_TABLE, make_attach(tokens=PROMPT))
    async with (
        scripted_target(vocab_size=VOCAB_SIZE) as target,
        running(settings) as (_, address),
        coordinating(address) as coordinator,
    ):
        options = sampling_pb2.SpeculationOptions(
            verifier=sampling_pb2.VERIFIER_KSEQ, tree_shape="2,1"
        )
        assert (await coordinator.attach(target, speculation=options)).attached.session == 1
        while not (message := await target.hear()).candidates.frozen:
            pass
        entry = message.candidates.frozen[0]
        assert (entry.handle, entry.base.length, entry.round) == (7, len(PROMPT), 1)
        assert entry.base.hash == mini.hash_at(len(PROMPT))
        assert list(entry.parents) == [0, 0, 1, 2]
        assert message.candidates.laws


async def test_a_model_that_cannot_be_loaded_fails_the_start(tmp_path: Path) -> None:
    """The error names what is wrong, and no thread stays."""
    engine = EngineSettings(model=f"tabular:{tmp_path / 'nothing.npz'}")
    server = DraftServer(DraftSettings(name="draft", incarnation=3, engine=engine))
    with pytest.raises((ValueError, OSError), match="nothing"):
        await server.start()
    assert all(thread.name != "draft-worker" for thread in threading.enumerate())


async def test_an_address_in_use_fails_the_start(settings: DraftSettings) -> None:
    """A second drafter on the same port says so, and no thread of it stays."""
    async with running(settings) as (_, address):
        second = DraftServer(replace(settings, name="second", listen=address))
        with pytest.raises(OSError, match="listen"):
            await second.start()
        assert all(thread.name != "second-worker" for thread in threading.enumerate())


async def test_a_worker_that_dies_takes_the_drafter_out_of_service(
    settings: DraftSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions are told, health turns, and nothing is attached any more."""
    async with (
        scripted_target() as target,
        running(settings) as (server, address),
        internal_channel(address) as channel,
        coordinating(address) as coordinator,
    ):
        await coordinator.attach(target)
        worker = server.worker
        assert worker is not None

        def die() -> bool:
            raise RuntimeError("bad memory")

        monkeypatch.setattr(worker, "run_once", die)
        assert "bad memory" in (await coordinator.hear()).detached.message
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await coordinator.call.read() is grpc.aio.EOF
