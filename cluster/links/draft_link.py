"""One coordinator's stream to one drafter: who is attached there.

Never on the way of a token: attaching is one message put on a queue, and whatever becomes of it changes only how fast
the session is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

import grpc
import structlog

from outrider.actors.exchange.option_fields import chosen
from outrider.actors.exchange.verifier_wire import offered_by
from outrider.actors.process.seldom_log import SeldomLog
from outrider.actors.rpc.closed_channel import ChannelClosed, telling_closed
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.speculation.policies import LengthChoice
from outrider.cluster.links.stream_link import CONNECT_S, BidiCall, LinkBroken, StreamLink
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2

log = structlog.get_logger(__name__)


class DraftSink(Protocol):
    """Who is told what becomes of an attachment."""

    def on_attached(self, drafter: str) -> None:
        """The drafter serves the session."""
        ...

    def on_detached(self, drafter: str, reason: str, *, can_retry: bool) -> None:
        """The drafter does not, or no longer, serve the session."""
        ...

    def on_room(self, drafter: str) -> None:
        """The drafter has room again, which the session waited for."""
        ...


class DraftLink(StreamLink[draft_pb2.DraftCommand, draft_pb2.DraftEvent, DraftSink]):
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
        super().__init__(f"the drafter {name!r}", address, hello, credentials)
        self.name = name
        self.entry = name
        """Its entry in the configuration: drafters of the same are replicas, of which one drafts for a text."""
        self.info: draft_pb2.DrafterInfo | None = None
        """What the drafter last told about itself; kept over breaks."""
        self._on_up = on_up
        self._refusals = SeldomLog(log)
        self._waiting: dict[DraftSink, None] = {}
        self.stub: draft_pb2_grpc.DraftServiceAsyncStub | None = None
        """For other calls to the drafter, while the stream is up."""

    @property
    def has_room(self) -> bool:
        """Whether the drafter can serve one more session, as far as this coordinator's own sessions go."""
        num_slots = self.info.num_slots if self.info is not None else 0
        return not num_slots or self.num_sessions < num_slots

    @property
    def verifiers(self) -> tuple[str, ...]:
        """What the drafter says that it can serve, as far as this version knows it."""
        return offered_by(self.info) if self.info is not None else ()

    @property
    def draft_lengths(self) -> tuple[LengthChoice, ...]:
        """The draft length policies that the drafter says that it can serve, as far as this version knows them."""
        if self.info is None:
            return ()
        return chosen(self.info, "draft_lengths", LengthChoice) or (LengthChoice.FULL,)

    @property
    def reads_siblings(self) -> bool:
        """Whether the drafter drafts the sequences of a request from each other."""
        return self.info is not None and self.info.reads_siblings

    def attach(self, command: draft_pb2.AttachSession, sink: DraftSink) -> None:
        """Attaches the drafter to a session; the sink is told if that comes to nothing."""
        self._waiting.pop(sink, None)
        self._sinks[command.session] = sink
        self._say(draft_pb2.DraftCommand(attach=command))

    def detach(self, session: int) -> None:
        """Ends the drafter's part in a session, if it has one."""
        if self._sinks.pop(session, None) is not None:
            command = draft_pb2.DraftCommand(detach=draft_pb2.DetachSession(session=session))
            self._say(command)
            self._offer_room()

    def wait_for_room(self, sink: DraftSink) -> None:
        """Has a sink told when there is room; whoever has waited longest is told first."""
        self._waiting[sink] = None

    def leave(self, sink: DraftSink) -> None:
        """Forgets a sink that waits for room."""
        self._waiting.pop(sink, None)

    async def refresh(self, timeout_s: float) -> bool:
        """Asks for the drafter's description again; False if it does not answer."""
        if self.stub is None:
            return False
        try:
            with telling_closed():
                self.info = await self.stub.GetInfo(
                    draft_pb2.GetDrafterInfoRequest(), timeout=timeout_s
                )
        except (grpc.aio.AioRpcError, ChannelClosed):
            return False
        return True

    async def _serve(self, channel: grpc.aio.Channel) -> None:
        stub = draft_pb2_grpc.DraftServiceStub(channel)
        info = await stub.GetInfo(draft_pb2.GetDrafterInfoRequest(), timeout=CONNECT_S)
        self._check_version(info.protocol_version)
        if info.name != self.name:
            raise LinkBroken(
                f"{info.name!r} listens at {self.address}, where {self.name!r} was expected"
            )
        call = cast(BidiCall[draft_pb2.DraftCommand, draft_pb2.DraftEvent], stub.Sessions())
        await self._introduce(call, draft_pb2.DraftCommand(hello=self._hello))
        self.info, self.stub = info, stub
        self.is_up = True
        log.info("drafter connected", drafter=self.name, address=self.address)
        self._on_up(self)
        try:
            await self._pump(call)
        finally:
            self.stub = None
            self._down(f"the stream to {self._called} broke")

    def _take(self, event: draft_pb2.DraftEvent) -> None:
        match event.WhichOneof("event"):
            case "attached":
                self.counts.attached += 1
                attached = self._sinks.get(event.attached.session)
                if attached is not None:
                    attached.on_attached(self.name)
            case "refused":
                self.counts.refused += 1
                refused = event.refused
                is_full = refused.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                tell = log.debug if is_full else self._refusals.warning
                # Another coordinator's sessions may fill a drafter at any time; that is no news. Texts beyond its context may be many.
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

    def _lost(self, sinks: Mapping[int, DraftSink], reason: str) -> None:
        for sink in sinks.values():
            sink.on_detached(self.name, reason, can_retry=True)
