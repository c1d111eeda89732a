"""Streams that break while they are being answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.engine.turn_taking import ComputeDevice
from outrider.actors.target.service.coordinator_streams import NO_ROOM, CoordinatorStreams
from outrider.actors.target.service.drafter_streams import DrafterStreams
from outrider.actors.target.service.feedback_streams import FeedbackStreams
from outrider.actors.target.state.target_events import (
    CloseStream,
    DrafterLeft,
    Event,
    Failed,
    SessionOwner,
)
from outrider.actors.tracing.recorder import Recorder
from outrider.v1 import sampling_pb2, target_pb2

BOUND_S = 60.0


class BrokenOff:
    """The context of a call whose peer is gone before it is answered."""

    async def write(self, message: Any) -> None:
        """As gRPC does."""
        raise asyncio.CancelledError


class Listening:
    """The context of a call whose peer says nothing and hears all."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, message: Any) -> None:
        """It hears."""
        await self.heard.put(message)

    async def read(self) -> Any:
        """It never says anything."""
        await asyncio.Event().wait()
        return grpc.aio.EOF


class Worker:
    """Takes events."""

    num_waiting = 0

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.post: Callable[[Event], None] = self.posted.append


async def test_a_coordinator_that_is_gone_before_it_is_answered_has_no_share() -> None:
    """The others have the slots to themselves: to them it was never there."""
    worker = Worker()
    streams = CoordinatorStreams("t", worker.post)
    with pytest.raises(asyncio.CancelledError):
        await streams.serve(BrokenOff(), "gone", target_pb2.Hello())  # type: ignore[arg-type]
    assert worker.posted == [CloseStream(stream=1)]
    context = Listening()
    serving = asyncio.ensure_future(
        streams.serve(context, "here", target_pb2.Hello())  # type: ignore[arg-type]
    )
    async with asyncio.timeout(BOUND_S):
        assert (await context.heard.get()).HasField("hello")
        streams.deliver(
            Failed(owner=SessionOwner(stream=2, session=1), code=NO_ROOM, message="full")
        )
        while not (event := await context.heard.get()).HasField("room"):
            pass
    assert (event.room.coordinators, event.room.is_contended) == (1, False)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_drafter_that_is_gone_before_it_is_answered_is_gone() -> None:
    """Nobody waits for it."""
    worker, recorder = Worker(), Recorder()
    spec = TabularEngine(random_table(8, 1, seed=1)).spec
    feedback = FeedbackStreams(
        target="t", spec=spec, tallies={}, post=worker.post, recorder=recorder
    )
    streams = DrafterStreams(
        "t",
        spec,
        "",
        ComputeDevice(""),
        worker,  # type: ignore[arg-type]
        feedback,
        recorder,
    )
    hello = target_pb2.Hello(
        name="d", incarnation=1, vocab_size=8, verifiers=[sampling_pb2.VERIFIER_COUPLED]
    )
    with pytest.raises(asyncio.CancelledError):
        await streams.serve(BrokenOff(), hello, target_pb2.Hello())  # type: ignore[arg-type]
    assert worker.posted[-1] == DrafterLeft(drafter="d")
