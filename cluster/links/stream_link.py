"""One stream of a coordinator to another actor, with all its sessions there: connect, introduce, pump, and again after it broke.

What is said on the stream is the business of `target_link` and `draft_link`. When the stream breaks, every session on it is told and
forgotten. Commands go out in the order given.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.v1 import target_pb2

log = structlog.get_logger(__name__)

CONNECT_S = 5.0
"""Seconds for each step of an introduction. A loaded machine answers in far less; a hung actor must not hold the link."""

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0
"""Seconds between attempts, doubling: a restarted actor is found soon, a dead one costs a few attempts a minute."""


@dataclass(slots=True, kw_only=True)
class LinkCounts:
    """What happened on the streams to one actor, whatever its address was."""

    breaks: int = 0
    """Streams that broke."""

    attached: int = 0
    """Drafters: sessions that it took."""

    refused: int = 0
    """Drafters: sessions that it refused."""


class LinkBroken(Exception):
    """A stream could not be made, or ended."""


Command = TypeVar("Command")
Event = TypeVar("Event", bound=Message)
Sink = TypeVar("Sink")
_Command_contra = TypeVar("_Command_contra", contravariant=True)
_Event_co = TypeVar("_Event_co", covariant=True)


class BidiCall(Protocol[_Command_contra, _Event_co]):
    """The part of a gRPC bidirectional call that is used."""

    async def write(self, request: _Command_contra) -> None: ...

    async def read(self) -> _Event_co: ...


class StreamLink(ABC, Generic[Command, Event, Sink]):
    """The stream to one actor."""

    def __init__(
        self, called: str, address: str, hello: target_pb2.Hello, credentials: Credentials
    ) -> None:
        """
        Args:
            called: What messages call the actor.
            address: Where it listens.
            hello: Introduces the coordinator.
            credentials: What the stream carries.
        """
        self.address = address
        self.is_up = False
        self.on_break: Callable[[], None] = lambda: None
        """Called when the stream has broken, after its sessions were told."""
        self.is_leaving = False
        """The actor was told to end: its stream ends with it, and does not break."""
        self.counts = LinkCounts()
        """Whoever keeps links sets those of the actor, which outlive this one."""
        self.last_error = ""
        self._called = called
        self._hello = hello
        self._credentials = credentials
        self._sinks: dict[int, Sink] = {}
        # Not bounded by itself: at most a few commands for each session, and sessions are bounded by slots.
        self._outgoing: asyncio.Queue[Command] = asyncio.Queue()

    @property
    def num_sessions(self) -> int:
        """Sessions on this stream."""
        return len(self._sinks)

    async def run(self) -> None:
        """Keeps the stream. Ends only by cancellation."""
        backoff_s = FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        try:
            while True:
                started, breaks = loop.time(), self.counts.breaks
                channel = internal_channel(self.address, self._credentials)
                try:
                    await self._serve(channel)
                    reason = "the stream ended"
                except grpc.aio.AioRpcError as error:
                    reason = f"{error.code().name}: {error.details()}"
                except (LinkBroken, TimeoutError) as error:
                    reason = str(error) or "it did not answer in time"
                finally:
                    await channel.close()
                # What was said of an attempt is not said of the next one; a stream that broke is news each time.
                if reason != self.last_error or self.counts.breaks != breaks:
                    tell = log.info if self.is_leaving else log.warning
                    tell("not connected", peer=self._called, reason=reason)
                self.last_error = reason
                if loop.time() - started > 2 * MAX_BACKOFF_S:
                    backoff_s = FIRST_BACKOFF_S
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
        finally:
            self._down("the coordinator is stopping")

    def _say(self, command: Command) -> None:
        """Queues a command."""
        self._outgoing.put_nowait(command)

    @abstractmethod
    async def _serve(self, channel: grpc.aio.Channel) -> None:
        """Asks for a description, introduces itself and pumps messages until the stream ends, which it tells by returning or raising."""

    @abstractmethod
    def _take(self, event: Event) -> None:
        """Takes what the actor says."""

    @abstractmethod
    def _lost(self, sinks: Mapping[int, Sink], reason: str) -> None:
        """Tells sessions that the stream broke."""

    def _check_version(self, version: int) -> None:
        """Refuses an actor of another release.

        Raises:
            LinkBroken: It speaks another version of the protocol.
        """
        if version != PROTOCOL_VERSION:
            raise LinkBroken(
                f"{self._called} speaks protocol version {version}, this coordinator {PROTOCOL_VERSION}; run the same release on both"
            )

    async def _introduce(self, call: BidiCall[Command, Event], hello: Command) -> Event:
        """Says who the coordinator is, and waits for the actor's own hello.

        Raises:
            LinkBroken, TimeoutError: There is none.
        """
        await call.write(hello)
        async with asyncio.timeout(CONNECT_S):
            first = await call.read()
        if is_end(first) or not first.HasField("hello"):
            raise LinkBroken(f"{self._called} did not introduce itself")
        self._outgoing = asyncio.Queue()
        return first

    async def _pump(self, call: BidiCall[Command, Event]) -> None:
        """Writes what is queued and takes what comes, until the stream ends.

        Raises:
            LinkBroken, grpc.aio.AioRpcError: How the stream ended.
        """

        async def write() -> None:
            while True:
                await call.write(await self._outgoing.get())

        # A write fails only when the call is over, which the read then tells. No task group: in Python 3.11 one whose
        # child fails while the group is being cancelled swallows the cancellation.
        writer = asyncio.get_running_loop().create_task(write())
        try:
            while not is_end(event := await call.read()):
                self._take(event)
            raise LinkBroken("the other side ended the stream")
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _down(self, reason: str) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self.counts.breaks += not self.is_leaving
        sinks, self._sinks = self._sinks, {}
        self._lost(sinks, reason)
        self.on_break()


def is_end(message: object) -> bool:
    """Whether a read found the end of the stream instead of a message."""
    return message is grpc.aio.EOF
