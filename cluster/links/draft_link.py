"""One coordinator's stream to one drafter: who is attached there.

Never on the way of a token: attaching is one message put on a queue, and whatever becomes of it changes only how fast
the session is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import grpc
import structlog

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.cluster.links.stream_link import CONNECT_S, BidiCall, LinkBroken, is_end, keep, pump
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2

log = structlog.get_logger(__name__)


class DraftSink(Protocol):
    """Who is told what becomes of an attachment."""

    def on_detached(self, drafter: str, reason: str, *, can_retry: bool) -> None:
        """The drafter does not, or no longer, serve the session."""
        ...

    def on_room(self, drafter: str) -> None:
        """The drafter has room again, which the session waited for."""
        ...


class DraftLink:
    """The stream to one drafter."""

    def __init__(
        self,
        name: str,
        address: str,
        hello: target_pb2.Hello,
        *,
        on_up: Callable[[DraftLink], None],
        credentials: Credentials = OPEN,
    ) -> None:
        """Takes whom to call.

        Args:
            name: The drafter's name.
            address: Where it listens.
            hello: Introduces the coordinator.
            on_up: Called when sessions can be attached.
            credentials: What the stream carries.
        """
        self.name = name
        self.address = address
        self.info: draft_pb2.DrafterInfo | None = None
        """What the drafter last told about itself; kept over breaks."""
        self.is_up = False
        self.num_breaks = 0
        self.num_attached = 0
        self.num_refused = 0
        self.last_error = ""
        self._hello = hello
        self._credentials = credentials
        self._on_up = on_up
        self._sinks: dict[int, DraftSink] = {}
        self._waiting: dict[DraftSink, None] = {}
        # Not bounded by itself: at most one attach and one detach for each session, and sessions are bounded by slots.
        self._outgoing: asyncio.Queue[draft_pb2.DraftCommand] = asyncio.Queue()
        self._stub: draft_pb2_grpc.DraftServiceAsyncStub | None = None

    @property
    def stub(self) -> draft_pb2_grpc.DraftServiceAsyncStub | None:
        """For other calls to the drafter, while the stream is up."""
        return self._stub

    @property
    def num_sessions(self) -> int:
        """Sessions attached on this stream, or being attached."""
        return len(self._sinks)

    @property
    def has_room(self) -> bool:
        """Whether the drafter can serve one more session, as far as this coordinator's own sessions go."""
        num_slots = self.info.num_slots if self.info is not None else 0
        return not num_slots or self.num_sessions < num_slots

    @property
    def reads_siblings(self) -> bool:
        """Whether the drafter drafts the sequences of a request from each other."""
        return self.info is not None and self.info.reads_siblings

    async def run(self) -> None:
        """Keeps the stream. Ends only by cancellation."""
        try:
            await keep(self.address, self._credentials, self._serve, self._note)
        finally:
            self._down("the coordinator is stopping")

    def attach(self, command: draft_pb2.AttachSession, sink: DraftSink) -> None:
        """Attaches the drafter to a session; the sink is told if that comes to nothing."""
        self._waiting.pop(sink, None)
        self._sinks[command.session] = sink
        self._outgoing.put_nowait(draft_pb2.DraftCommand(attach=command))

    def detach(self, session: int) -> None:
        """Ends the drafter's part in a session, if it has one."""
        if self._sinks.pop(session, None) is not None:
            command = draft_pb2.DraftCommand(detach=draft_pb2.DetachSession(session=session))
            self._outgoing.put_nowait(command)
            self._offer_room()

    def wait_for_room(self, sink: DraftSink) -> None:
        """Has a sink told when there is room; whoever has waited longest is told first."""
        self._waiting[sink] = None

    def leave(self, sink: DraftSink) -> None:
        """Forgets a sink that waits for room."""
        self._waiting.pop(sink, None)

    async def refresh(self, timeout_s: float) -> bool:
        """Asks for the drafter's description again; False if it does not answer."""
        if self._stub is None:
            return False
        try:
            self.info = await self._stub.GetInfo(
                draft_pb2.GetDrafterInfoRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError:
            return False
        return True

    async def _serve(self, channel: grpc.aio.Channel) -> None:
        stub = draft_pb2_grpc.DraftServiceStub(channel)
        info = await stub.GetInfo(draft_pb2.GetDrafterInfoRequest(), timeout=CONNECT_S)
        if info.protocol_version != PROTOCOL_VERSION:
            raise LinkBroken(
                f"the drafter {self.name!r} speaks protocol version {info.protocol_version}, this coordinator "
                f"{PROTOCOL_VERSION}; run the same release on both"
            )
        if info.name != self.name:
            raise LinkBroken(
                f"{info.name!r} listens at {self.address}, where {self.name!r} was expected"
            )
        call = cast(BidiCall[draft_pb2.DraftCommand, draft_pb2.DraftEvent], stub.Sessions())
        await call.write(draft_pb2.DraftCommand(hello=self._hello))
        async with asyncio.timeout(CONNECT_S):
            first = await call.read()
        if is_end(first) or not first.HasField("hello"):
            raise LinkBroken(f"the drafter {self.name!r} did not introduce itself")
        self.info, self._stub = info, stub
        self._outgoing = asyncio.Queue()
        self.is_up = True
        log.info("drafter connected", drafter=self.name, address=self.address)
        self._on_up(self)
        try:
            await pump(call, self._outgoing, self._take)
        finally:
            self._stub = None
            self._down(f"the stream to the drafter {self.name!r} broke")

    def _take(self, event: draft_pb2.DraftEvent) -> None:
        match event.WhichOneof("event"):
            case "attached":
                self.num_attached += 1
            case "refused":
                self.num_refused += 1
                refused = event.refused
                is_full = refused.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                # Another coordinator's sessions may fill a drafter at any time; that is no news.
                tell = log.debug if is_full else log.warning
                tell("drafter refused a session", drafter=self.name, reason=refused.message)
                self._end(refused.session, refused.message, can_retry=is_full)
            case "detached":
                self._end(event.detached.session, event.detached.message, can_retry=True)

    def _end(self, session: int, reason: str, *, can_retry: bool) -> None:
        sink = self._sinks.pop(session, None)
        if sink is not None:
            sink.on_detached(self.name, reason, can_retry=can_retry)
            self._offer_room()

    def _offer_room(self) -> None:
        while self._waiting and self.is_up and self.has_room:
            sink = next(iter(self._waiting))
            del self._waiting[sink]
            sink.on_room(self.name)

    def _down(self, reason: str) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self.num_breaks += 1
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.on_detached(self.name, reason, can_retry=True)

    def _note(self, reason: str) -> None:
        if reason != self.last_error:
            log.warning("drafter not connected", drafter=self.name, reason=reason)
        self.last_error = reason
