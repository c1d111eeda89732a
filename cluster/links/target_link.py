"""One coordinator's stream to one target: all its sessions there. A `close` frees its slot before a later `open` asks for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

import grpc
import structlog

from outrider.actors.exchange import commits
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.exchange.session_drafters import places_to_proto
from outrider.actors.rpc.closed_channel import ChannelClosed, telling_closed
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.cluster.links.stream_link import CONNECT_S, BidiCall, LinkBroken, StreamLink
from outrider.v1 import target_pb2, target_pb2_grpc

log = structlog.get_logger(__name__)


class SessionSink(Protocol):
    """Who is told what becomes of a session."""

    def on_commit(self, epoch: int, ids: list[int], origins: list[int]) -> None:
        """The target has committed tokens, none with log-probabilities. The lists are the sink's.

        Args:
            epoch: Rounds that the session has seen.
            ids: Token ids.
            origins: The drafter that proposed each, -1: the target itself.
        """
        ...

    def on_event(self, event: target_pb2.SessionEvent) -> None:
        """The target said something else about the session."""
        ...

    def on_lost(self, reason: str) -> None:
        """The session is gone with its stream."""
        ...

    def on_drafters_wanted(self) -> None:
        """The target has use for drafters again."""
        ...


class TargetLink(StreamLink[target_pb2.SessionCommand, target_pb2.SessionEvent, SessionSink]):
    """The stream to one target."""

    def __init__(
        self,
        address: str,
        hello: target_pb2.Hello,
        *,
        on_up: Callable[[TargetLink], None],
        on_down: Callable[[TargetLink], None],
        on_room: Callable[[TargetLink, target_pb2.SharedRoom], None],
        credentials: Credentials = OPEN,
    ) -> None:
        """Takes whom to call.

        Args:
            address: Where the target listens.
            hello: Introduces the coordinator.
            on_up: Called when sessions can be opened. Raises `LinkBroken` to refuse the target.
            on_down: Called when the stream is gone, before its sessions are told.
            on_room: Called with what other coordinators hold of the target's slots.
            credentials: What the stream carries.
        """
        super().__init__(f"the target at {address}", address, hello, credentials)
        self.info: target_pb2.TargetInfo | None = None
        """What the target last told about itself; kept over breaks."""
        self.wants_drafters = True
        """Whether drafters should be attached to sessions: the target decodes plainly where they do not pay."""
        self._on_up = on_up
        self._on_down = on_down
        self._on_room = on_room
        self.stub: target_pb2_grpc.TargetServiceAsyncStub | None = None
        """For other calls to the target, while the stream is up."""

    @property
    def name(self) -> str:
        """The target's name; its address as long as it has not told."""
        return self.info.name if self.info is not None else self.address

    @property
    def incarnation(self) -> int:
        """The start of the target that the stream leads to."""
        return self.info.incarnation if self.info is not None else 0

    @property
    def fingerprint(self) -> str:
        """Of what a text follows from, besides the request; empty as long as the target has not told."""
        return self.info.model_fingerprint if self.info is not None else ""

    def open(self, command: target_pb2.OpenSession, sink: SessionSink) -> None:
        """Opens a session; what becomes of it is told to the sink."""
        self._sinks[command.session] = sink
        self._say(target_pb2.SessionCommand(open=command))

    def close(self, session: int) -> None:
        """Ends a session at the target. Its sink is still told what comes, until `forget`."""
        if session in self._sinks:
            command = target_pb2.SessionCommand(close=target_pb2.CloseSession(session=session))
            self._say(command)

    def forget(self, session: int) -> None:
        """Stops telling the sink of a session."""
        self._sinks.pop(session, None)

    def steer(self, session: int, drafters: Mapping[str, int]) -> None:
        """Tells the target whose candidates to accept from now on."""
        if session in self._sinks:
            steer = target_pb2.SteerSession(session=session, drafters=places_to_proto(drafters))
            self._say(target_pb2.SessionCommand(steer=steer))

    async def refresh(self, timeout_s: float) -> bool:
        """Asks for the target's description again; False if it does not answer."""
        if self.stub is None:
            return False
        try:
            with telling_closed():
                self.info = await self.stub.GetInfo(
                    target_pb2.GetTargetInfoRequest(), timeout=timeout_s
                )
        except (grpc.aio.AioRpcError, ChannelClosed):
            return False
        return True

    async def _serve(self, channel: grpc.aio.Channel) -> None:
        stub = target_pb2_grpc.TargetServiceStub(channel)
        info = await stub.GetInfo(target_pb2.GetTargetInfoRequest(), timeout=CONNECT_S)
        self._check_version(info.protocol_version)
        if info.incarnation < self.incarnation:
            raise LinkBroken(
                f"{self._called} is an old start ({info.incarnation}, {self.incarnation} was seen)"
            )
        call = cast(BidiCall[target_pb2.SessionCommand, target_pb2.SessionEvent], stub.Sessions())
        first = await self._introduce(call, target_pb2.SessionCommand(hello=self._hello))
        if first.hello.incarnation != info.incarnation:
            raise LinkBroken(f"{self._called} started again while it was asked")
        self.info, self.stub = info, stub
        self.wants_drafters = True
        try:
            self._on_up(self)
            self.is_up = True
            log.info("target connected", target=info.name, address=self.address)
            await self._pump(call)
        finally:
            self.stub = None
            self._down(f"the stream to the target {info.name!r} broke")

    def _take(self, event: target_pb2.SessionEvent) -> None:
        kind = event.WhichOneof("event")
        if kind is None or kind == "hello":
            return
        if kind == "commits":
            self._take_commits(event.commits.frame)
            return
        if kind == "several":
            for each in event.several.events:
                self._take(each)
            return
        if kind == "room":
            self._on_room(self, event.room)
            return
        if kind == "drafters_wanted":
            self.wants_drafters = event.drafters_wanted.is_wanted
            for waiting in list(self._sinks.values()) if self.wants_drafters else ():
                waiting.on_drafters_wanted()
            return
        # A session that is not known is over here; the target has not heard of it yet.
        sink = self._sinks.get(getattr(event, kind).session)
        if sink is not None:
            sink.on_event(event)

    def _take_commits(self, frame: bytes) -> None:
        try:
            told = commits.decode(frame)
        except BadFrame as error:
            raise LinkBroken(f"{self._called} sent {error}") from error
        sinks = self._sinks
        for session, epoch, tokens, origins in told:
            sink = sinks.get(session)
            if sink is not None:
                sink.on_commit(epoch, tokens, origins)

    def _lost(self, sinks: Mapping[int, SessionSink], reason: str) -> None:
        self._on_down(self)
        for sink in sinks.values():
            sink.on_lost(reason)
