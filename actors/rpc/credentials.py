"""What proves that an internal call comes from the same service. Every internal server and channel is made with it.

The supervisor makes a secret for each service and hands it to the actors that it starts. It guards against other programs on the
same hosts and networks. Without TLS it is no encryption: whoever can read the traffic can read the secret.
"""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc

from outrider.actors.rpc.tls import TlsFiles

METADATA_KEY = "outrider-secret"
"""Of the secret, in the metadata of every internal call."""

SECRET_BYTES = 32
"""Of randomness in a secret."""

HEALTH = "/grpc.health.v1.Health/"
"""Methods that need no secret: probes have none, and the answer tells nothing of sessions."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secret of one service, not shown in logs, and the certificates of its actors."""

    secret: str = field(default="", repr=False)
    """Empty: none is asked for and none is sent. Only for servers that one process starts and calls itself."""

    tls: TlsFiles | None = None
    """Mutual TLS between actors; None: plain connections."""

    @classmethod
    def fresh(cls, tls: TlsFiles | None = None) -> Credentials:
        """A secret that nobody else knows."""
        return cls(secrets.token_hex(SECRET_BYTES), tls)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries."""
        return ((METADATA_KEY, self.secret),) if self.secret else ()

    def admits(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Whether a call with this metadata comes from the same service. Takes the same time for every wrong secret."""
        if not self.secret:
            return True
        given = next((value for key, value in metadata if key == METADATA_KEY), "")
        stated = given if isinstance(given, bytes) else given.encode()
        return hmac.compare_digest(stated, self.secret.encode())


OPEN = Credentials()
"""Asks for nothing."""


NOT_ADMITTED = (
    "this port is internal to one service, and the call does not carry that service's secret"
)
NOT_A_MESSAGE = "the bytes are no message of this method; run the same release on both sides"


class Unparsable:
    """Stands for bytes that are no message of a method, until the call that brought them is refused."""


class Guard(grpc.aio.ServerInterceptor):
    """Refuses calls without the secret, and answers bytes that do not parse with INVALID_ARGUMENT instead of a traceback."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """See `grpc.aio.ServerInterceptor`."""
        handler, details = await continuation(handler_call_details), handler_call_details
        if handler is None:
            return handler
        is_admitted = details.method.startswith(HEALTH) or self._credentials.admits(
            details.invocation_metadata or ()
        )
        return _guarded(handler, is_admitted=is_admitted)


def _guarded(handler: Any, *, is_admitted: bool) -> grpc.RpcMethodHandler[Any, Any]:
    kind = f"{_arity(handler.request_streaming)}_{_arity(handler.response_streaming)}"
    method, parse = getattr(handler, kind), handler.request_deserializer

    def parsed(data: bytes) -> Any:
        try:
            return parse(data)
        except Exception:  # noqa: BLE001 - whatever a parser raises, the caller is told the same
            return Unparsable()

    async def checked(request: Any, context: Any) -> tuple[Any, Any]:
        if not is_admitted:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, NOT_ADMITTED)
        if handler.request_streaming:
            return _each(request, context), _Reading(context)
        return await _readable(request, context), context

    async def answer(request: Any, context: Any) -> Any:
        return await method(*await checked(request, context))

    async def answer_one_by_one(request: Any, context: Any) -> Any:
        async for response in method(*await checked(request, context)):
            yield response

    make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
    made: grpc.RpcMethodHandler[Any, Any] = make(
        answer_one_by_one if inspect.isasyncgenfunction(method) else answer,
        request_deserializer=parsed,
        response_serializer=handler.response_serializer,
    )
    return made


def _arity(is_streaming: bool) -> str:
    return "stream" if is_streaming else "unary"


async def _readable(message: Any, context: Any) -> Any:
    """A message, unless it is none: then the call ends."""
    if isinstance(message, Unparsable):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, NOT_A_MESSAGE)
    return message


async def _each(messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
    async for message in messages:
        yield await _readable(message, context)


class _Reading:
    """The context of a stream, whose `read` ends the call at what is no message."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.write = context.write

    async def read(self) -> Any:
        return await _readable(await self._context.read(), self._context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
