"""The channels of one client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import grpc.aio

from outrider.client.connection.access import Access
from outrider.client.connection.channel import channel_options
from outrider.client.connection.errors import OutriderError
from outrider.client.connection.misfits import explained
from outrider.client.connection.waits import Waits
from outrider.v1.generation_pb2_grpc import GenerationServiceStub

if TYPE_CHECKING:
    from outrider.v1.generation_pb2_grpc import GenerationServiceAsyncStub


class RunningCalls(Protocol):
    """A call that opens itself again when it breaks, and so must be told when its client closes."""

    def cut(self) -> None:
        """Ends it; whoever reads from it is told."""


Loop = asyncio.AbstractEventLoop | None
"""What calls and channels belong to; None: any thread."""

_Running = WeakKeyDictionary[RunningCalls, Loop]

Key = tuple[Loop, str, tuple[int, ...]]
"""Of a channel: the loop it belongs to, its address, the versions of its certificates."""


class Connections:
    """One channel a loop, address and certificate, opened when first used; calls go to the current one. Safe to share among threads."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        *,
        connect_timeout_s: float,
        access: Access,
        waits: Waits,
    ) -> None:
        self.addresses = addresses
        self.waits = waits
        """How whoever uses the connections waits."""
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._channels: dict[Key, grpc.aio.Channel] = {}
        self._running = _Running()
        self._current = 0

    @property
    def current(self) -> str:
        """The address that calls go to."""
        return self.addresses[self._current]

    def rotate(self, failed: str) -> None:
        """Goes on to the next address, unless another call has done so since `failed` was the current one."""
        with self._lock:
            if failed == self.current:
                self._current = (self._current + 1) % len(self.addresses)

    def pick(self, refused: Collection[str]) -> str:
        """The current address, after going past those that have refused a call for good. One that has not is left."""
        while (address := self.current) in refused:
            self.rotate(address)
        return address

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel of an address, on the loop that runs. Those of loops that have ended are let go: they ended with them."""
        key = (self.waits.loop(), address, self._access.versions())
        with self._lock:
            if key not in self._channels:
                options = channel_options(address, self._connect_timeout_s)
                made = self.waits.channel(self._access, address, options)
                kept = {
                    k: c for k, c in self._channels.items() if k[0] is None or not k[0].is_closed()
                }
                self._channels = {**kept, key: made}
            return self._channels[key]

    def stub(self, address: str) -> GenerationServiceAsyncStub:
        """The generation service at an address."""
        return GenerationServiceStub(self.channel(address))

    def register(self, call: RunningCalls) -> None:
        """Cancels the call when the client closes."""
        with self._lock:
            self._running[call] = self.waits.loop()

    async def explained(self, error: OutriderError, address: str) -> OutriderError:
        """The error, or the cause of it, if certificates are."""
        return await self.waits.aside(explained, error, address, self._access.tls)

    async def close(self) -> None:
        """Cancels running calls and closes every channel. Those of another loop end there, as soon as that loop runs."""
        present = self.waits.loop()
        with self._lock:
            channels, self._channels = self._channels, {}
            running, self._running = list(self._running.items()), _Running()
        for loop in {*(key[0] for key in channels), *(loop for _, loop in running)}:
            calls = [call for call, its_loop in running if its_loop is loop]
            its_channels = [channel for key, channel in channels.items() if key[0] is loop]
            if loop is present or loop is None:
                await _end(calls, its_channels)
            else:
                with suppress(RuntimeError):  # it has ended, and they with it
                    loop.call_soon_threadsafe(_end_here, calls, its_channels)


_ending: set[asyncio.Task[None]] = set()
"""Loops hold their tasks weakly."""


def _end_here(calls: Iterable[RunningCalls], channels: Iterable[grpc.aio.Channel]) -> None:
    """As `_end`, begun on the loop that runs."""
    task = asyncio.create_task(_end(calls, channels))
    _ending.add(task)
    task.add_done_callback(_ending.discard)


async def _end(calls: Iterable[RunningCalls], channels: Iterable[grpc.aio.Channel]) -> None:
    """Cancels calls and closes channels."""
    for call in calls:
        call.cut()
    for channel in channels:
        await channel.close()
