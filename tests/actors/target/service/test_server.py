"""A target over real gRPC: handshake, sessions, candidates, breaking streams."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import grpc
import numpy as np
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Logits
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.engine.turn_taking import ComputeDevice
from outrider.actors.exchange import candidates, commits
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.commits import Commit
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.session_drafters import places_to_proto
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.actors.speculation.trees import base_hash
from outrider.actors.target.service import drafter_streams, peer_outbox, target_service
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_events import CloseStream
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker
from outrider.v1 import sampling_pb2, target_pb2, target_pb2_grpc

BOUND_S = 60.0

PASS_S = 0.1
"""Of a pass that leaves time to look."""

Call = grpc.aio.StreamStreamCall[target_pb2.SessionCommand, target_pb2.SessionEvent]
Exchange = grpc.aio.StreamStreamCall[target_pb2.DrafterMessage, target_pb2.VerdictMessage]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[TargetServer, str]]:
    """A running target with a table of eight tokens, and its address."""
    table = tmp_path / "table.npz"
    random_table(8, 2, seed=1).save(table)
    settings = TargetSettings(
        name="t",
        incarnation=7,
        model_name="table",
        engine=EngineSettings(model=f"tabular:{table}", num_slots=2, max_context=4096),
    )
    server = TargetServer(settings)
    address = await server.start()
    try:
        yield server, address
    finally:
        await server.stop(0.0)


@pytest.fixture
async def stub(
    served: tuple[TargetServer, str],
) -> AsyncIterator[target_pb2_grpc.TargetServiceAsyncStub]:
    """A stub of it."""
    async with internal_channel(served[1]) as channel:
        yield target_pb2_grpc.TargetServiceStub(channel)


@pytest.fixture
def may_hurry(served: tuple[TargetServer, str], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set passes take `PASS_S`: a text is not over before anyone has looked at it."""
    worker, event = served[0].worker, threading.Event()
    assert worker is not None
    engine = worker.state.engine
    forward = engine.forward

    def slowed(batch: Any) -> Logits:
        event.wait(PASS_S)
        return forward(batch)

    monkeypatch.setattr(engine, "forward", slowed)
    return event


def hello(
    name: str = "c", incarnation: int = 1, version: int = PROTOCOL_VERSION
) -> target_pb2.Hello:
    """A greeting."""
    return target_pb2.Hello(
        protocol_version=version,
        name=name,
        incarnation=incarnation,
        vocab_size=8,
        verifiers=[sampling_pb2.VERIFIER_COUPLED],
    )


def open_session(
    session: int, max_tokens: int, drafters: tuple[str, ...] = ()
) -> target_pb2.SessionCommand:
    """An open command with prompt 1 2 3."""
    return target_pb2.SessionCommand(
        open=target_pb2.OpenSession(
            session=session,
            prompt=[1, 2, 3],
            sampling=sampling_pb2.SamplingOptions(seed=5, max_tokens=max_tokens),
            drafters=places_to_proto({name: place for place, name in enumerate(drafters)}),
        )
    )


_UNREAD: WeakKeyDictionary[Call, deque[target_pb2.SessionEvent]] = WeakKeyDictionary()
"""Events that came in one message with those that were read."""


async def next_event(call: Call) -> target_pb2.SessionEvent:
    """The next event of a coordinator's stream."""
    unread = _UNREAD.setdefault(call, deque())
    if not unread:
        event = await asyncio.wait_for(call.read(), BOUND_S)
        assert isinstance(event, target_pb2.SessionEvent), "the stream ended"
        unread.extend(event.several.events if event.HasField("several") else [event])
    return unread.popleft()


async def next_message(call: Exchange) -> target_pb2.VerdictMessage:
    """The next message of a drafter's stream."""
    message = await asyncio.wait_for(call.read(), BOUND_S)
    assert isinstance(message, target_pb2.VerdictMessage), "the stream ended"
    return message


def committed(event: target_pb2.SessionEvent) -> list[Commit]:
    """What an event says of tokens."""
    return commits.decode(event.commits.frame) if event.HasField("commits") else []


async def finish(call: Call, session: int) -> list[int]:
    """Reads a session to its end."""
    tokens: list[int] = []
    async with asyncio.timeout(BOUND_S):
        while True:
            event = await next_event(call)
            for one in committed(event):
                tokens.extend(one.tokens if one.session == session else [])
            if event.HasField("finished") and event.finished.session == session:
                return tokens
            assert not event.HasField("failed"), event.failed.message


async def sessions(stub: target_pb2_grpc.TargetServiceAsyncStub) -> Call:
    """A coordinator's stream after the handshake."""
    call = stub.Sessions()
    await call.write(target_pb2.SessionCommand(hello=hello()))
    answer = await next_event(call)
    assert answer.hello.incarnation == 7
    return call


async def after_room(call: Call) -> target_pb2.SessionEvent:
    """The next event that is not of how many coordinators there are, which is told whenever it is counted."""
    async with asyncio.timeout(BOUND_S):
        while (event := await next_event(call)).HasField("room"):
            pass
        return event


async def told_wanted(call: Call) -> bool:
    """What a coordinator is told of whether drafters are wanted, which has to be the next."""
    event = await after_room(call)
    assert event.HasField("drafters_wanted")
    return event.drafters_wanted.is_wanted


async def wait_for_free(stub: target_pb2_grpc.TargetServiceAsyncStub, slots: int) -> None:
    """Waits until so many slots are free."""
    async with asyncio.timeout(BOUND_S):
        while True:
            info = await stub.GetInfo(target_pb2.GetTargetInfoRequest())
            if info.num_free_slots == slots:
                return
            await asyncio.sleep(0.01)


async def test_coordinators_are_told_whether_drafters_are_wanted(
    served: tuple[TargetServer, str], stub: target_pb2_grpc.TargetServiceAsyncStub
) -> None:
    """Those that are connected when it changes, and those that come later, before anything else."""
    worker = served[0].worker
    assert worker is not None
    early = await sessions(stub)
    worker.state.rest(is_resting=True)
    worker.post(CloseStream(stream=0))  # looks up from its sleep
    assert not await told_wanted(early)
    late = await sessions(stub)
    event = await next_event(late)
    assert event.HasField("drafters_wanted")
    assert not event.drafters_wanted.is_wanted
    worker.state.rest(is_resting=False)
    worker.post(CloseStream(stream=0))  # looks up from its sleep
    for call in (early, late):
        assert await told_wanted(call)
    latest = await sessions(stub)
    await latest.write(open_session(1, 3))
    assert (await after_room(latest)).HasField("opened")


async def test_session_is_decoded(stub: target_pb2_grpc.TargetServiceAsyncStub) -> None:
    """Tokens come back, the slot is freed, the same request gives the same text."""
    call = await sessions(stub)
    await call.write(open_session(1, 30))
    first = await finish(call, 1)
    await call.write(open_session(2, 30))
    assert await finish(call, 2) == first
    assert len(first) == 30
    info = await stub.GetInfo(target_pb2.GetTargetInfoRequest())
    assert (info.num_slots, info.num_free_slots, info.vocab_size) == (2, 2, 8)
    assert info.passes > 0


async def test_a_round_over_many_sessions_is_one_message(
    stub: target_pb2_grpc.TargetServiceAsyncStub, may_hurry: threading.Event
) -> None:
    """What waits for a coordinator that does not read goes out together, in order, and all of it."""
    call = await sessions(stub)
    await call.write(open_session(1, 300))
    await call.write(open_session(2, 300))
    await wait_for_free(stub, 0)
    may_hurry.set()
    await wait_for_free(stub, 2)
    tokens: dict[int, int] = {1: 0, 2: 0}
    epochs: dict[int, int] = {1: 0, 2: 0}
    num_messages, finished = 0, set[int]()
    while len(finished) < 2:
        message = await asyncio.wait_for(call.read(), BOUND_S)
        assert isinstance(message, target_pb2.SessionEvent), "the stream ended"
        num_messages += 1
        for event in message.several.events if message.HasField("several") else [message]:
            for one in committed(event):
                assert one.epoch == epochs[one.session] + 1
                epochs[one.session] += 1
                tokens[one.session] += len(one.tokens)
            if event.HasField("finished"):
                finished.add(event.finished.session)
    assert tokens == {1: 300, 2: 300}
    assert num_messages < sum(epochs.values())


async def test_broken_coordinator_frees_its_sessions(
    stub: target_pb2_grpc.TargetServiceAsyncStub, may_hurry: threading.Event
) -> None:
    """A coordinator that is gone leaves no slot taken, though its text would go on for minutes."""
    call = await sessions(stub)
    await call.write(open_session(1, 4000))
    await wait_for_free(stub, 1)
    call.cancel()
    await wait_for_free(stub, 2)


async def test_candidates_are_verified_and_answered(
    stub: target_pb2_grpc.TargetServiceAsyncStub,
) -> None:
    """A drafter that knows the text is believed, told what was committed, and told of the end."""
    call = await sessions(stub)
    await call.write(open_session(1, 40))
    text = await finish(call, 1)
    exchange = stub.Exchange()
    await exchange.write(target_pb2.DrafterMessage(hello=hello("d")))
    answer = await next_message(exchange)
    assert answer.hello.name == "t"
    await call.write(open_session(2, 40, ("d",)))
    opened = await next_event(call)
    for _ in range(3):
        await exchange.write(
            target_pb2.DrafterMessage(
                candidates=target_pb2.CandidateBatch(
                    frame=frame_of(opened.opened.handle, text, list(range(-1, 39)))
                )
            )
        )
    assert await finish(call, 2) == text
    async with asyncio.timeout(BOUND_S):
        while True:
            message = await next_message(exchange)
            if message.HasField("closed"):
                break
    exchange.cancel()


def frame_of(handle: int, tokens: list[int], parents: list[int]) -> bytes:
    """A tree below the prompt, whatever it holds."""
    text = base_hash.extend_all(base_hash.EMPTY, [1, 2, 3])
    return candidates.encode(
        Candidates(
            handles_E=np.array([handle], np.uint64),
            lengths_E=np.array([3]),
            hashes_E=np.array([text], np.uint64),
            numbers_E=np.array([1]),
            starts_E=np.array([0, len(tokens)]),
            tokens_N=np.array(tokens),
            parents_N=np.array(parents),
            estimates_N=np.full(len(tokens), 255, np.uint8),
        )
    )


@dataclass(frozen=True)
class Rogue:
    """A drafter that sends what no drafter of ours would."""

    exchange: Exchange

    async def send(self, frame: bytes) -> None:
        """Sends one frame."""
        batch = target_pb2.CandidateBatch(frame=frame)
        await self.exchange.write(target_pb2.DrafterMessage(candidates=batch))


@pytest.mark.parametrize("vocab_size", [8, 0])
async def test_a_drafter_that_sends_rubbish_harms_nobody(
    stub: target_pb2_grpc.TargetServiceAsyncStub, vocab_size: int
) -> None:
    """Token ids, parents and sizes are checked on arrival, also for a drafter that states no vocabulary."""
    call = await sessions(stub)
    await call.write(open_session(1, 300))
    plain = await finish(call, 1)
    exchange = stub.Exchange()
    greeting = hello("d")
    greeting.vocab_size = vocab_size
    await exchange.write(target_pb2.DrafterMessage(hello=greeting))
    assert (await next_message(exchange)).HasField("hello")
    await call.write(open_session(2, 300, drafters=("d",)))
    await call.write(open_session(3, 300))
    opened: dict[int, int] = {}
    begun: list[target_pb2.SessionEvent] = []
    while len(opened) < 2:
        event = await next_event(call)
        begun.append(event)
        if event.HasField("opened"):
            opened[event.opened.session] = event.opened.handle
    rogue = Rogue(exchange)
    for tokens, parents in (
        ([8], [-1]),
        ([2**32 - 1] * 4, [-1, 0, 1, 2]),
        ([1, 2], [-1, 8]),
    ):
        await rogue.send(frame_of(opened[2], tokens, parents))
    await rogue.send(frame_of(opened[2], [1], [-1])[:-1])
    await rogue.send(b"rubbish")
    await rogue.send(frame_of(2**64 - 1, [1], [-1]))
    assert await finish_both(call, (2, 3), begun) == {2: plain, 3: plain}
    exchange.cancel()


async def finish_both(
    call: Call, wanted: tuple[int, ...], begun: list[target_pb2.SessionEvent]
) -> dict[int, list[int]]:
    """Reads several sessions to their ends, of which some events were read before."""
    tokens: dict[int, list[int]] = {session: [] for session in wanted}
    ended: set[int] = set()
    async with asyncio.timeout(BOUND_S):
        while len(ended) < len(wanted):
            event = begun.pop(0) if begun else await next_event(call)
            for one in committed(event):
                tokens[one.session].extend(one.tokens)
            if event.HasField("finished"):
                ended.add(event.finished.session)
            assert not event.HasField("failed"), event.failed.message
    return tokens


@pytest.mark.parametrize(
    ("greeting", "word"),
    [
        (target_pb2.DrafterMessage(hello=hello(version=99)), "99"),
        (target_pb2.DrafterMessage(resync=target_pb2.ResyncRequest(handle=1)), "hello"),
        (
            target_pb2.DrafterMessage(
                hello=target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="d", vocab_size=9)
            ),
            "9 token ids",
        ),
    ],
)
async def test_misfits_are_refused_at_the_handshake(
    stub: target_pb2_grpc.TargetServiceAsyncStub, greeting: target_pb2.DrafterMessage, word: str
) -> None:
    """The status says why."""
    exchange = stub.Exchange()
    await exchange.write(greeting)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(exchange.read(), BOUND_S)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert word in (caught.value.details() or "")


async def test_later_start_of_a_drafter_replaces_the_earlier(
    stub: target_pb2_grpc.TargetServiceAsyncStub,
) -> None:
    """The earlier stream is ended, and cannot come back."""
    first, second = stub.Exchange(), stub.Exchange()
    await first.write(target_pb2.DrafterMessage(hello=hello("d", 1)))
    await asyncio.wait_for(first.read(), BOUND_S)
    await second.write(target_pb2.DrafterMessage(hello=hello("d", 2)))
    await asyncio.wait_for(second.read(), BOUND_S)
    assert await asyncio.wait_for(first.read(), BOUND_S) is grpc.aio.EOF
    third = stub.Exchange()
    await third.write(target_pb2.DrafterMessage(hello=hello("d", 1)))
    with pytest.raises(grpc.aio.AioRpcError, match="dead"):
        await asyncio.wait_for(third.read(), BOUND_S)
    second.cancel()


async def test_a_later_start_hears_of_no_session_that_it_has_not_asked_for(
    stub: target_pb2_grpc.TargetServiceAsyncStub, may_hurry: threading.Event
) -> None:
    """What the earlier one took part in is not known to it, and nobody waits for what it would send."""
    call, first, second = stub.Sessions(), stub.Exchange(), stub.Exchange()
    await call.write(target_pb2.SessionCommand(hello=hello()))
    await next_event(call)
    await first.write(target_pb2.DrafterMessage(hello=hello("d", 1)))
    await next_message(first)
    await call.write(open_session(1, 4000, ("d",)))
    handle = 0
    while not handle:
        handle = (await next_event(call)).opened.handle
    ask = target_pb2.DrafterMessage(resync=target_pb2.ResyncRequest(handle=handle, length=3))
    await first.write(ask)
    while not (await next_message(first)).HasField("verdicts"):
        pass
    await second.write(target_pb2.DrafterMessage(hello=hello("d", 2)))
    await next_message(second)
    nobody = target_pb2.ResyncRequest(handle=handle + 1, length=0)
    num_heard = 0
    for _ in range(2):
        for _ in range(4):
            while not committed(await next_event(call)):
                pass
        # What was decided when the stream came may be told on it still.
        num_heard = 0
        await second.write(target_pb2.DrafterMessage(resync=nobody))
        while not (await next_message(second)).HasField("closed"):
            num_heard += 1
    assert not num_heard
    await second.write(ask)
    assert (await next_message(second)).resync.handle == handle
    while not (await next_message(second)).HasField("verdicts"):
        pass
    second.cancel()
    call.cancel()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """The target's device, which runs one's passes at a time."""
    monkeypatch.setattr(target_service, "compute_device", lambda *_, **__: ComputeDevice("GPU-1"))
    return "GPU-1"


@pytest.mark.parametrize(("theirs", "is_shared"), [("GPU-1", True), ("GPU-2", False), ("", False)])
async def test_a_drafter_on_the_same_device_is_known(
    device: str, served: tuple[TargetServer, str], theirs: str, is_shared: bool
) -> None:
    """Both ends name what they compute on; the target waits otherwise for whom it holds up."""
    async with internal_channel(served[1]) as channel:
        exchange = target_pb2_grpc.TargetServiceStub(channel).Exchange()
        greeting = hello("d")
        greeting.device = theirs
        await exchange.write(target_pb2.DrafterMessage(hello=greeting))
        await next_message(exchange)
        worker = served[0].worker
        assert worker is not None
        await wait_for_drafters(worker, 1)
        assert worker.state.clock.is_shared is is_shared
        exchange.cancel()
        await wait_for_drafters(worker, 0)
        assert not worker.state.clock.is_shared


async def wait_for_drafters(worker: TargetWorker, count: int) -> None:
    """Until so many are connected."""
    for _ in range(int(BOUND_S / 0.01)):
        if len(worker.state.live) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(worker.state.live)} drafters, not {count}")


async def test_refused_session_says_why(stub: target_pb2_grpc.TargetServiceAsyncStub) -> None:
    """A command that lacks a field, or asks too much, fails its session and nothing else."""
    call = await sessions(stub)
    await call.write(target_pb2.SessionCommand(open=target_pb2.OpenSession(session=1, prompt=[1])))
    event = await next_event(call)
    assert "seed" in event.failed.message
    await call.write(open_session(2, 10**6))
    event = await next_event(call)
    assert "4096" in event.failed.message
    await call.write(open_session(3, 5))
    assert len(await finish(call, 3)) == 5


async def test_health_is_stock(
    stub: target_pb2_grpc.TargetServiceAsyncStub, tmp_path: Path
) -> None:
    """The standard health service answers for the service and overall."""
    table = tmp_path / "other.npz"
    random_table(4, 0, seed=1).save(table)
    server = TargetServer(
        TargetSettings(
            name="h",
            incarnation=1,
            model_name="m",
            engine=EngineSettings(model=f"tabular:{table}"),
        )
    )
    address = await server.start()
    async with internal_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", "outrider.v1.TargetService"):
            answer = await health.Check(
                health_pb2.HealthCheckRequest(service=service), timeout=BOUND_S
            )
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await server.stop(0.0)


async def test_missing_model_fails_the_start() -> None:
    """The message names the file; nothing stays behind."""
    server = TargetServer(
        TargetSettings(
            name="x",
            incarnation=1,
            model_name="m",
            engine=EngineSettings(model="tabular:/nowhere/table.npz"),
        )
    )
    with pytest.raises(ValueError, match="nowhere"):
        await server.start()


@pytest.mark.parametrize("bound", ["MOST_WAITING", "MOST_UNREAD"])
async def test_a_drafter_waits_while_the_worker_or_itself_is_behind(
    stub: target_pb2_grpc.TargetServiceAsyncStub, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """What it sends stays on its side instead of in the target's memory; coordinators are heard meanwhile, and it is, later."""
    monkeypatch.setattr(drafter_streams, bound, 0)
    exchange = stub.Exchange()
    await exchange.write(target_pb2.DrafterMessage(hello=hello("d")))
    assert (await next_message(exchange)).HasField("hello")
    # The first is taken, and tells that there is no room.
    for handle in (11, 12):
        request = target_pb2.ResyncRequest(handle=handle)
        await exchange.write(target_pb2.DrafterMessage(resync=request))
    assert (await next_message(exchange)).closed.handle == 11
    call = await sessions(stub)
    await call.write(open_session(1, 40))
    assert len(await finish(call, 1)) == 40
    second = asyncio.ensure_future(next_message(exchange))
    answered, _ = await asyncio.wait([second], timeout=0.3)
    assert not answered, "the second was read"
    monkeypatch.undo()
    assert (await second).closed.handle == 12
    exchange.cancel()


async def test_a_flood_of_rubbish_is_one_line_of_the_log(
    stub: target_pb2_grpc.TargetServiceAsyncStub,
) -> None:
    """It names drafter and reason; how many there were is told once it is gone."""
    with structlog.testing.capture_logs() as lines:
        exchange = stub.Exchange()
        await exchange.write(target_pb2.DrafterMessage(hello=hello("d")))
        assert (await next_message(exchange)).HasField("hello")
        rogue = Rogue(exchange)
        for _ in range(200):
            await rogue.send(b"rubbish")
        await exchange.done_writing()
        assert await asyncio.wait_for(exchange.read(), BOUND_S) is grpc.aio.EOF
    dropped = [line for line in lines if line["event"] == "candidates dropped"]
    assert [line.get("times") for line in dropped] == [None, 199]
    assert {(line["drafter"], line["reason"]) for line in dropped} == {
        ("d", "a frame of 7 bytes; at least 20 are needed")
    }


async def test_who_is_refused_at_the_door_stands_in_the_log(
    stub: target_pb2_grpc.TargetServiceAsyncStub,
) -> None:
    """Of another version, without a word of who it is, or with more words than any answer could hold."""
    with structlog.testing.capture_logs() as lines:
        for first in (
            target_pb2.DrafterMessage(hello=hello("d", version=99)),
            target_pb2.DrafterMessage(resync=target_pb2.ResyncRequest()),
            target_pb2.DrafterMessage(hello=hello("d" * 100_000)),
        ):
            exchange = stub.Exchange()
            await exchange.write(first)
            assert await exchange.code() is grpc.StatusCode.FAILED_PRECONDITION
    refused = [line["reason"] for line in lines if line["event"] == "stream refused"]
    assert len(refused) == 3
    assert "protocol version 99 of 'd'" in refused[0]
    assert "must be a hello" in refused[1]
    assert "a name of 100000 characters" in refused[2]


async def test_a_drafter_that_does_not_read_is_cut_off_by_name(
    stub: target_pb2_grpc.TargetServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says why its stream ended."""
    monkeypatch.setattr(peer_outbox, "OUTGOING_MESSAGES", 2)
    with structlog.testing.capture_logs() as lines:
        exchange = stub.Exchange()
        await exchange.write(target_pb2.DrafterMessage(hello=hello("d")))
        assert (await next_message(exchange)).HasField("hello")
        # Three answers of one step.
        entries = [candidates.decode(frame_of(handle, [1], [-1]), 8) for handle in (7, 8, 9)]
        await Rogue(exchange).send(candidates.encode(side_by_side(entries)))
        while await asyncio.wait_for(exchange.read(), BOUND_S) is not grpc.aio.EOF:
            continue
    (cut,) = [line for line in lines if line["event"] == "stream cut off"]
    assert (cut["drafter"], cut["reason"]) == ("d", "it did not read 2 messages")


def side_by_side(entries: list[Candidates]) -> Candidates:
    """Trees of one node each in one message."""
    return Candidates(
        handles_E=np.concatenate([one.handles_E for one in entries]),
        lengths_E=np.concatenate([one.lengths_E for one in entries]),
        hashes_E=np.concatenate([one.hashes_E for one in entries]),
        numbers_E=np.concatenate([one.numbers_E for one in entries]),
        starts_E=np.arange(len(entries) + 1),
        tokens_N=np.concatenate([one.tokens_N for one in entries]),
        parents_N=np.concatenate([one.parents_N for one in entries]),
        estimates_N=np.concatenate([one.estimates_N for one in entries]),
    )
