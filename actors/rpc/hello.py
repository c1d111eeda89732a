"""The first message of every internal stream: a hello of our protocol version, from a living peer."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc
import structlog

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.v1 import target_pb2

HELLO_TIMEOUT_S = 10.0
"""Bound on waiting for it. A peer sends it before anything else, so only one that is no peer of ours is this late."""

MAX_NAME = 256
"""Characters of a peer's name, which logs and refusals repeat: gRPC drops an answer whose reason is too long, so that nobody would learn it."""

_log = structlog.get_logger(__name__)


async def take_hello(
    context: grpc.aio.ServicerContext[Any, Any], *, own_name: str
) -> target_pb2.Hello:
    """Reads the first message of a stream, and ends the stream with `FAILED_PRECONDITION` if it is no hello of our version.

    Args:
        context: Of the stream; its messages have a field `hello`.
        own_name: Whose stream it is, for the reason.

    Raises:
        grpc.aio.AbortError: The stream was ended; to be left to gRPC.
    """
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await context.read()
    except TimeoutError:
        first = grpc.aio.EOF
    if first is grpc.aio.EOF or not first.HasField("hello"):
        await _refuse(context, "the first message must be a hello")
    hello = first.hello
    if len(hello.name) > MAX_NAME:
        await _refuse(context, f"a name of {len(hello.name)} characters; at most {MAX_NAME}")
    if hello.protocol_version != PROTOCOL_VERSION:
        await _refuse(
            context,
            f"protocol version {hello.protocol_version} of {hello.name!r} does not fit "
            f"{PROTOCOL_VERSION} of {own_name!r}; run the same release on both",
        )
    return hello  # type: ignore[no-any-return]  # requests of several message types come here


async def _refuse(context: grpc.aio.ServicerContext[Any, Any], reason: str) -> NoReturn:
    _log.warning("stream refused", peer=context.peer(), reason=reason)
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)


class PeerIncarnations:
    """The latest start of each peer: messages from an earlier one come from the dead."""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}

    def refusal(self, name: str, incarnation: int) -> str | None:
        """Why this start is refused, None if it is the latest so far, which it then becomes."""
        latest = self._latest.get(name, 0)
        if incarnation < latest:
            return (
                f"incarnation {incarnation} of {name!r} is dead: {latest} has connected since; "
                "stop the older process"
            )
        self._latest[name] = incarnation
        return None
