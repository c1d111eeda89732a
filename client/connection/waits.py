"""How the client waits: on an event loop, or by blocking its thread.

The client is written once, as coroutines (`async_client.py`). With `AsyncioWaits` they wait on an event loop. With `BlockingWaits`
each of their waits has blocked the thread until it was over, so that a coroutine never suspends and `finished` runs it
like a function: no loop, no second thread, and no `grpc.aio`, which does not survive a fork.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import grpc.aio

from outrider.client.connection.access import Access
from outrider.client.connection.blocking_channel import BlockingChannel
from outrider.client.connection.blocking_flag import BlockingFlag

_Result = TypeVar("_Result")
_Args = ParamSpec("_Args")


class WaitFlag(Protocol):
    """Is set once. `Waits.wait` waits for it."""

    def set(self) -> None:
        """Sets it; whoever waits goes on."""

    def is_set(self) -> bool:
        """Whether it is set."""


class Waits(Protocol):
    """Everything that waits."""

    def loop(self) -> asyncio.AbstractEventLoop | None:
        """What a channel belongs to: the event loop that runs; None: nothing, it serves any thread."""

    def channel(
        self, access: Access, address: str, options: Sequence[tuple[str, int]]
    ) -> grpc.aio.Channel:
        """A channel whose calls are awaited.

        Raises:
            Unauthorized: A certificate cannot be read any more.
        """

    def flag(self) -> WaitFlag:
        """A flag that is not set."""

    async def wait(self, flag: Any, seconds: float | None) -> bool:
        """Waits until a flag of this kind is set, or the seconds are over (None: without end). Returns whether it is set."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def aside(
        self, function: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Result:
        """What a function that blocks returns."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> object:
        """Runs work beside the caller; whoever started it keeps what this returns."""


class AsyncioWaits:
    """On the event loop that runs."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """See `Waits`."""
        return asyncio.get_running_loop()

    def channel(
        self, access: Access, address: str, options: Sequence[tuple[str, int]]
    ) -> grpc.aio.Channel:
        """See `Waits`."""
        return cast(grpc.aio.Channel, access.channel(grpc.aio, address, options))

    def flag(self) -> asyncio.Event:
        """See `Waits`."""
        return asyncio.Event()

    async def wait(self, flag: asyncio.Event, seconds: float | None) -> bool:
        """See `Waits`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await flag.wait()
        return flag.is_set()

    async def sleep(self, seconds: float) -> None:
        """See `Waits`."""
        await asyncio.sleep(seconds)

    async def aside(
        self, function: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Result:
        """See `Waits`."""
        return await asyncio.to_thread(function, *args, **kwargs)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """See `Waits`."""
        return asyncio.create_task(work, name=name)


class BlockingWaits:
    """By blocking the thread: nothing here suspends. Safe to share among threads."""

    def loop(self) -> None:
        """See `Waits`."""
        return

    def channel(
        self, access: Access, address: str, options: Sequence[tuple[str, int]]
    ) -> grpc.aio.Channel:
        """See `Waits`."""
        blocking = BlockingChannel(access, address, options)
        return cast(grpc.aio.Channel, blocking)  # as far as the stubs and the client use one

    def flag(self) -> BlockingFlag:
        """See `Waits`."""
        return BlockingFlag()

    async def wait(self, flag: BlockingFlag, seconds: float | None) -> bool:
        """See `Waits`."""
        return flag.wait(seconds)

    async def sleep(self, seconds: float) -> None:
        """See `Waits`."""
        BlockingFlag().wait(seconds)

    async def aside(
        self, function: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Result:
        """See `Waits`."""
        return function(*args, **kwargs)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> threading.Thread:
        """See `Waits`."""
        thread = threading.Thread(target=finished, args=(work,), name=name, daemon=True)
        thread.start()
        return thread


def finished(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs a coroutine of `BlockingWaits` to its end, and returns or raises what it does."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(_Result, end.value)
    work.close()
    raise RuntimeError("a wait of the blocking client has suspended")
