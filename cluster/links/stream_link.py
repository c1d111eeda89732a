"""Keeping one stream to another actor: connect, introduce, pump, and again after it broke.

What is said on the stream is the business of `target_link` and `draft_link`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import grpc

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel

CONNECT_S = 5.0
"""Seconds for each step of an introduction. A loaded machine answers in far less; a hung actor must not hold the link."""

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0
"""Seconds between attempts, doubling: a restarted actor is found soon, a dead one costs a few attempts a minute."""


class LinkBroken(Exception):
    """A stream could not be made, or ended."""


Command = TypeVar("Command")
Event = TypeVar("Event")
_Command_contra = TypeVar("_Command_contra", contravariant=True)
_Event_co = TypeVar("_Event_co", covariant=True)


class BidiCall(Protocol[_Command_contra, _Event_co]):
    """The part of a gRPC bidirectional call that is used."""

    async def write(self, request: _Command_contra) -> None: ...

    async def read(self) -> _Event_co: ...


async def keep(
    address: str,
    credentials: Credentials,
    serve: Callable[[grpc.aio.Channel], Awaitable[None]],
    on_attempt_failed: Callable[[str], None],
) -> None:
    """Connects and serves for ever; ends only by cancellation.

    Args:
        address: Where the actor listens.
        credentials: What its calls carry.
        serve: Introduces itself and pumps messages until the stream ends, which it tells by returning or raising.
        on_attempt_failed: Told why, after each end.
    """
    backoff_s = FIRST_BACKOFF_S
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        channel = internal_channel(address, credentials)
        try:
            await serve(channel)
            reason = "the stream ended"
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        except (LinkBroken, TimeoutError) as error:
            reason = str(error) or "it did not answer in time"
        finally:
            await channel.close()
        on_attempt_failed(reason)
        if loop.time() - started > 2 * MAX_BACKOFF_S:
            backoff_s = FIRST_BACKOFF_S
        await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
        backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)


async def pump(
    call: BidiCall[Command, Event],
    outgoing: asyncio.Queue[Command],
    take: Callable[[Event], None],
) -> None:
    """Writes what is queued and hands over what comes, until the stream ends.

    Raises:
        LinkBroken, grpc.aio.AioRpcError: How the stream ended.
    """

    async def write() -> None:
        while True:
            await call.write(await outgoing.get())

    # A write fails only when the call is over, which the read then tells. No task group: in Python 3.11 one whose
    # child fails while the group is being cancelled swallows the cancellation.
    writer = asyncio.get_running_loop().create_task(write())
    try:
        while not is_end(event := await call.read()):
            take(event)
        raise LinkBroken("the other side ended the stream")
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


def is_end(message: object) -> bool:
    """Whether a read found the end of the stream instead of a message."""
    return message is grpc.aio.EOF
