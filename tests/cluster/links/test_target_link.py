"""The stream to a target: who is refused, and what breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs
from tests.cluster.scripted import Script, ScriptedTarget

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.cluster.links.target_link import TargetLink
from outrider.v1 import target_pb2

HELLO = target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="c", incarnation=1)


class Sink:
    """Notes what a session is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.lost: list[str] = []

    def on_commit(self, epoch: int, ids: list[int], origins: list[int]) -> None:
        """Notes it."""
        self.events.append("committed")

    def on_event(self, event: target_pb2.SessionEvent) -> None:
        """Notes the kind."""
        self.events.append(event.WhichOneof("event") or "")

    def on_lost(self, reason: str) -> None:
        """Notes the reason."""
        self.lost.append(reason)

    def on_drafters_wanted(self) -> None:
        """Notes it."""
        self.events.append("drafters_wanted")


class Linked:
    """A link and what it called."""

    def __init__(self, address: str) -> None:
        self.calls: list[str] = []
        self.link = TargetLink(
            address,
            HELLO,
            on_up=lambda link: self.calls.append("up"),
            on_down=lambda link: self.calls.append("down"),
            on_room=lambda link, room: self.calls.append(f"room {room.held_by_others}"),
        )
        self.task = asyncio.get_running_loop().create_task(self.link.run())

    async def stop(self) -> None:
        """Ends the link."""
        self.task.cancel()
        async with asyncio.timeout(60.0):
            await asyncio.gather(self.task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(60.0):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


@pytest.fixture
async def target() -> AsyncIterator[ScriptedTarget]:
    """A scripted target, serving."""
    made = ScriptedTarget(Script())
    await made.start()
    yield made
    await made.stop()


def open_session(session: int) -> target_pb2.OpenSession:
    """A command."""
    command = target_pb2.OpenSession(session=session, prompt=[97])
    command.sampling.max_tokens = 2
    return command


async def test_a_session_is_told_everything_and_then_forgotten(target: ScriptedTarget) -> None:
    """Its events in order; nothing after it is forgotten."""
    linked, sink = Linked(target.address), Sink()
    await until(lambda: linked.link.is_up)
    linked.link.open(open_session(1), sink)
    await until(lambda: "finished" in sink.events)
    assert sink.events == ["opened", "committed", "finished"]
    linked.link.forget(1)
    linked.link.close(1)
    assert linked.link.num_sessions == 0
    await linked.stop()
    assert linked.calls == ["up", "down"]
    assert sink.lost == []


async def test_a_break_is_told_once_and_mended(target: ScriptedTarget) -> None:
    """Every session hears of it, and the link comes up again by itself."""
    target.script.hold = asyncio.Event()
    linked, sink = Linked(target.address), Sink()
    await until(lambda: linked.link.is_up)
    linked.link.open(open_session(1), sink)
    await until(lambda: "opened" in sink.events)
    await target.stop()
    await until(lambda: bool(sink.lost))
    assert not linked.link.is_up
    target.incarnation = 2
    await target.start(target.address)
    await until(lambda: linked.link.is_up)
    assert linked.link.incarnation == 2
    assert len(sink.lost) == 1
    await linked.stop()
    assert linked.calls == ["up", "down", "up", "down"]


async def asking(target: ScriptedTarget) -> tuple[Linked, asyncio.Task[bool]]:
    """A link that is up, and who asks on it for a description that does not come."""
    linked = Linked(target.address)
    await until(lambda: linked.link.is_up)
    target.script.hold_info = asyncio.Event()
    asked = asyncio.create_task(linked.link.refresh(60.0))
    await asyncio.sleep(0.1)
    return linked, asked


async def test_a_break_while_a_description_is_asked_for(target: ScriptedTarget) -> None:
    """There is none; whoever asked goes on."""
    linked, asked = await asking(target)
    target.hang_up()
    async with asyncio.timeout(60.0):
        assert not await asked
    await linked.stop()


async def test_who_asks_for_a_description_can_be_cancelled(target: ScriptedTarget) -> None:
    """The task ends."""
    linked, asked = await asking(target)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await linked.stop()


async def test_an_old_start_of_a_target_is_refused(target: ScriptedTarget) -> None:
    """A process that should be dead does not get sessions."""
    target.incarnation = 5
    linked = Linked(target.address)
    await until(lambda: linked.link.is_up)
    await target.stop()
    target.incarnation = 4
    await target.start(target.address)
    await until(lambda: "is an old start (4, 5 was seen)" in linked.link.last_error)
    assert not linked.link.is_up
    await linked.stop()


async def test_bytes_that_are_no_commits_break_the_stream(target: ScriptedTarget) -> None:
    """The sessions on it hear of it and are opened again, and the reason is told."""
    target.script.hold = asyncio.Event()
    linked, sink = Linked(target.address), Sink()
    await until(lambda: linked.link.is_up)
    linked.link.open(open_session(1), sink)
    await until(lambda: "opened" in sink.events)
    target.tell(target_pb2.SessionEvent(commits=target_pb2.CommitBatch(frame=b"hello")))
    await until(lambda: bool(sink.lost))
    await until(lambda: linked.link.is_up)
    assert "sent a frame of 5 bytes" in linked.link.last_error
    assert linked.link.counts.breaks == 1
    await linked.stop()


async def test_each_break_is_told(target: ScriptedTarget) -> None:
    """An operator who looks for a stream that breaks again and again finds every time."""
    linked = Linked(target.address)
    with capture_logs() as lines:
        for times in range(1, 4):
            await until(lambda: linked.link.is_up)
            target.hang_up()
            await until(lambda: linked.calls.count("up") > times)  # noqa: B023 - awaited at once
    told = [line for line in lines if line["event"] == "not connected"]
    assert [line["reason"] for line in told] == [told[0]["reason"]] * 3
    assert all(target.address in line["peer"] for line in told)
    assert not any("actor" in line for line in told), "that is who writes the line"
    await linked.stop()


async def test_stopping_ends_a_link_that_cannot_connect() -> None:
    """At once, in whatever step it is."""
    for pause_s in (0.0, 0.01, 0.05, 0.3):
        linked = Linked("127.0.0.1:1")
        await asyncio.sleep(pause_s)
        await linked.stop()
        assert linked.task.done()
