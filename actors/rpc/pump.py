"""Both directions of one stream at a server, until either is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import grpc

LOOK_AGAIN_S = 0.001
"""Between two looks for room, while a peer sends faster than is taken."""


class Outgoing(Protocol):
    """Messages for one stream."""

    async def take(self) -> list[Any]:
        """Waits for messages and takes some, oldest first; none: the stream is to end."""
        ...


async def pump(
    context: grpc.aio.ServicerContext[Any, Any],
    outbox: Outgoing,
    take: Callable[[Any], None],
    unite: Callable[[list[Any]], list[Any]] | None = None,
    has_room: Callable[[], bool] | None = None,
) -> None:
    """Reads and writes until the peer is done, does not read, or breaks off, or the outbox has ended.

    Args:
        context: Gives what the peer sends and takes what we send.
        outbox: Holds what we send.
        take: Takes one message of the peer.
        unite: Makes few messages of many, None: each goes out by itself.
        has_room: Whether one message more can be taken. While it cannot, nothing is read, so that the peer has to wait with what it sends;
            None: always.
    """

    async def write() -> None:
        while messages := await outbox.take():
            for message in unite(messages) if unite is not None else messages:
                await context.write(message)

    async def read() -> None:
        # Iterating over the requests does the same with a generator more for each message.
        while (message := await context.read()) is not grpc.aio.EOF:
            take(message)
            while has_room is not None and not has_room():  # noqa: ASYNC110 - another thread makes it
                await asyncio.sleep(LOOK_AGAIN_S)

    tasks = [asyncio.ensure_future(write()), asyncio.ensure_future(read())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.RpcError):
            await asyncio.gather(*tasks, return_exceptions=True)
