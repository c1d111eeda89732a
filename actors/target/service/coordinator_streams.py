"""The streams on which coordinators open sessions and hear of them. On the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import structlog

from outrider.actors.exchange.session_drafters import places_from_proto
from outrider.actors.rpc.pump import pump
from outrider.actors.target.service.peer_outbox import PeerOutbox
from outrider.actors.target.service.slot_shares import Shares
from outrider.actors.target.service.target_messages import (
    commit_message,
    drafters_wanted,
    open_from_proto,
    session_event,
    several,
    shared_room,
)
from outrider.actors.target.state.target_events import (
    CloseSession,
    CloseStream,
    CommitFrame,
    Committed,
    Event,
    Failed,
    Finished,
    Opened,
    SessionOwner,
    Steer,
)
from outrider.v1 import target_pb2

NO_ROOM = "RESOURCE_EXHAUSTED"
"""Code of a session that was refused because every slot is taken."""

ROOM_GAP_S = 0.02
"""Changes of who holds which slot are told together for so long."""

_log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorStreams:
    """Who opens sessions, and who holds which slot."""

    def __init__(self, target: str, post: Callable[[Event], None]) -> None:
        """
        Args:
            target: The target's name.
            post: Takes events for the worker.
        """
        self._target = target
        self._post = post
        self._outboxes: dict[int, PeerOutbox[target_pb2.SessionEvent]] = {}
        """By number of the stream."""
        self._next_stream = 1
        self._wants_drafters = True
        self._shares = Shares()
        self._telling: asyncio.TimerHandle | None = None

    async def serve(self, context: Context, name: str, own_hello: target_pb2.Hello) -> None:
        """Serves one of them until its stream ends.

        Args:
            context: Of the call.
            name: The coordinator's.
            own_hello: Introduces the target.
        """
        stream, self._next_stream = self._next_stream, self._next_stream + 1
        outbox: PeerOutbox[target_pb2.SessionEvent] = PeerOutbox()
        self._outboxes[stream] = outbox
        self._shares.join(stream)
        self._tell_room_in(ROOM_GAP_S)
        if not self._wants_drafters:
            outbox.put(drafters_wanted(False))
        try:
            await context.write(target_pb2.SessionEvent(hello=own_hello))
            _log.info("coordinator connected", target=self._target, coordinator=name)
            await pump(context, outbox, lambda c: self._command(c, stream), several)
        finally:
            outbox.tell_overrun(self._target, coordinator=name)
            del self._outboxes[stream]
            self._shares.leave(stream)
            self._tell_room_in(ROOM_GAP_S)
            self._post(CloseStream(stream=stream))

    def deliver(self, event: Opened | CommitFrame | Committed | Finished | Failed) -> None:
        """Tells the coordinator that it concerns."""
        if isinstance(event, CommitFrame):
            outbox = self._outboxes.get(event.stream)
            message = commit_message(event)
        else:
            self._count(event)
            outbox = self._outboxes.get(event.owner.stream)
            message = session_event(event)
        if outbox is not None:
            outbox.put(message)

    def want_drafters(self, is_wanted: bool) -> None:
        """Tells all of them whether drafters should be attached."""
        self._wants_drafters = is_wanted
        for outbox in self._outboxes.values():
            outbox.put(drafters_wanted(is_wanted))

    def end(self) -> None:
        """Ends every stream."""
        for outbox in self._outboxes.values():
            outbox.end()

    def _command(self, command: target_pb2.SessionCommand, stream: int) -> None:
        match command.WhichOneof("command"):
            case "open":
                try:
                    self._post(open_from_proto(command.open, stream))
                except ValueError as error:
                    owner = SessionOwner(stream=stream, session=command.open.session)
                    self.deliver(Failed(owner=owner, code="INVALID_ARGUMENT", message=str(error)))
            case "close":
                owner = SessionOwner(stream=stream, session=command.close.session)
                self._post(CloseSession(owner=owner))
            case "steer":
                owner = SessionOwner(stream=stream, session=command.steer.session)
                try:
                    drafters = places_from_proto(command.steer.drafters)
                    self._post(Steer(owner=owner, drafters=drafters))
                except ValueError as error:
                    _log.warning("steering dropped", session=owner.session, reason=str(error))

    # -- slots -----------------------------------------------------------------------------------------------------

    def _count(self, event: Opened | Committed | Finished | Failed) -> None:
        """Notes who holds which slot, and tells the others soon."""
        stream, session = event.owner.stream, event.owner.session
        match event:
            case Committed():
                return
            case Opened():
                self._shares.opened(stream, session)
            case Finished() | Failed():
                self._shares.ended(stream, session)
                if isinstance(event, Failed) and event.code == NO_ROOM:
                    self._shares.refused(stream, now_s=time.monotonic())
        self._tell_room_in(ROOM_GAP_S)

    def _tell_room_in(self, wait_s: float) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(wait_s, self._tell_room)

    def _tell_room(self) -> None:
        self._telling, now_s = None, time.monotonic()
        for stream, room in self._shares.news(now_s=now_s).items():
            if stream in self._outboxes:
                self._outboxes[stream].put(shared_room(room))
        left_s = self._shares.next_change_s(now_s=now_s)
        if left_s is not None and self._outboxes:
            self._tell_room_in(left_s + ROOM_GAP_S)
