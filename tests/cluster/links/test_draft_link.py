"""The stream to a drafter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import structlog
from tests.cluster.scripted import ScriptedDrafter

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.cluster.links.draft_link import DraftLink
from outrider.v1 import draft_pb2, target_pb2

HELLO = target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="c", incarnation=1)


class Sink:
    """Notes who took a session, and gave it up."""

    def __init__(self) -> None:
        self.attached: list[str] = []
        self.detached: list[tuple[str, bool]] = []
        self.room: list[str] = []

    def on_attached(self, drafter: str) -> None:
        """Notes it."""
        self.attached.append(drafter)

    def on_detached(self, drafter: str, reason: str, *, can_retry: bool) -> None:
        """Notes it."""
        self.detached.append((drafter, can_retry))

    def on_room(self, drafter: str) -> None:
        """Notes it."""
        self.room.append(drafter)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(60.0):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def stop(task: asyncio.Task[None]) -> None:
    """Ends a link."""
    task.cancel()
    async with asyncio.timeout(60.0):
        await asyncio.gather(task, return_exceptions=True)


async def test_attachments_refusals_and_breaks_are_told() -> None:
    """A refusal for good, one for lack of room, and a broken stream."""
    drafter, sink = ScriptedDrafter("d"), Sink()
    link = DraftLink("d", await drafter.start(), HELLO, on_up=lambda link: None)
    task = asyncio.get_running_loop().create_task(link.run())
    await until(lambda: link.is_up)
    drafter.refuse = (grpc.StatusCode.FAILED_PRECONDITION, "never")
    link.attach(draft_pb2.AttachSession(session=1), sink)
    await until(lambda: sink.detached == [("d", False)])
    drafter.refuse = (grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
    link.attach(draft_pb2.AttachSession(session=2), sink)
    await until(lambda: sink.detached[1:] == [("d", True)])
    drafter.refuse = None
    link.attach(draft_pb2.AttachSession(session=3), sink)
    await until(lambda: link.counts.attached == 1)
    assert sink.attached == ["d"]
    await drafter.stop()
    await until(lambda: sink.detached[2:] == [("d", True)])
    assert (link.counts.refused, link.num_sessions, link.counts.breaks) == (2, 0, 1)
    await stop(task)


async def test_refusals_are_one_line_and_later_a_number() -> None:
    """A draft model with a shorter context than its target's refuses every long text, each for a reason of its own."""
    drafter, sink = ScriptedDrafter("d"), Sink()
    link = DraftLink("d", await drafter.start(), HELLO, on_up=lambda link: None)
    task = asyncio.get_running_loop().create_task(link.run())
    await until(lambda: link.is_up)
    with structlog.testing.capture_logs() as lines:
        for session in range(1, 6):
            drafter.refuse = (grpc.StatusCode.FAILED_PRECONDITION, f"{40 + session} tokens")
            link.attach(draft_pb2.AttachSession(session=session), sink)
            await until(lambda: len(sink.detached) == session)  # noqa: B023  # awaited here
    told = [line["reason"] for line in lines if line["log_level"] == "warning"]
    assert told == ["41 tokens"]
    assert link.counts.refused == 5
    await drafter.stop()
    await stop(task)


async def test_detaching_is_told_once_and_quiet_afterwards() -> None:
    """The drafter hears it, the sink hears nothing more."""
    drafter, sink = ScriptedDrafter("d"), Sink()
    link = DraftLink("d", await drafter.start(), HELLO, on_up=lambda link: None)
    task = asyncio.get_running_loop().create_task(link.run())
    await until(lambda: link.is_up)
    link.attach(draft_pb2.AttachSession(session=1), sink)
    await until(lambda: link.counts.attached == 1)
    link.detach(1)
    link.detach(1)
    await until(lambda: drafter.detached == [1])
    await stop(task)
    await drafter.stop()
    assert sink.detached == []


class Holding(ScriptedDrafter):
    """Describes itself once, and then no more."""

    is_held = False

    async def GetInfo(
        self, request: draft_pb2.GetDrafterInfoRequest, context: Any
    ) -> draft_pb2.DrafterInfo:
        """Waits where it is held."""
        if self.is_held:
            await asyncio.sleep(60.0)
        return await super().GetInfo(request, context)


async def test_a_break_while_a_description_is_asked_for() -> None:
    """There is none; whoever asked goes on."""
    drafter = Holding("d")
    link = DraftLink("d", await drafter.start(), HELLO, on_up=lambda link: None)
    task = asyncio.get_running_loop().create_task(link.run())
    await until(lambda: link.is_up)
    drafter.is_held = True
    asked = asyncio.create_task(link.refresh(60.0))
    await asyncio.sleep(0.1)
    task.cancel()  # as where the drafter has left the roster
    async with asyncio.timeout(60.0):
        assert not await asked
    await stop(task)
    await drafter.stop()


async def test_another_actor_at_the_address_is_refused() -> None:
    """A port may have passed on to someone else."""
    drafter = ScriptedDrafter("someone")
    link = DraftLink("d", await drafter.start(), HELLO, on_up=lambda link: None)
    task = asyncio.get_running_loop().create_task(link.run())
    await until(lambda: "'someone' listens at" in link.last_error)
    assert not link.is_up
    await stop(task)
    await drafter.stop()
