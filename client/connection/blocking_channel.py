"""A channel for threads behind the surface of one for asyncio: awaiting its calls blocks.

Nothing of gRPC's runs in the main thread where a signal may interrupt it, as `undisturbed.py` says. That holds for the end of a
call, too: one that is dropped cancels itself, for which it takes locks of its channel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import grpc
import grpc.aio

from outrider.client.connection.access import Access
from outrider.client.connection.undisturbed import undisturbed, undisturbed_later


class BlockingChannel:
    """A channel to one address. Safe to share among threads."""

    def __init__(self, access: Access, address: str, options: Sequence[tuple[str, int]]) -> None:
        """Raises:
        Unauthorized: A certificate cannot be read any more.
        """
        self._channel: Any = undisturbed(access.channel, grpc, address, options)
        self._is_closed = False

    def unary_unary(self, *args: Any, **kwargs: Any) -> Callable[..., Awaitable[Any]]:
        """See `grpc.aio.Channel`."""
        call = self._channel.unary_unary(*args, **kwargs)

        async def ask(*given: Any, **options: Any) -> Any:
            return undisturbed(self._begun, call, *given, **options)

        return ask

    def unary_stream(self, *args: Any, **kwargs: Any) -> Callable[..., BlockingRead]:
        """See `grpc.aio.Channel`."""
        call = self._channel.unary_stream(*args, **kwargs)
        return lambda *given, **options: BlockingRead(self._begun, call, *given, **options)

    async def close(self) -> None:
        """See `grpc.aio.Channel`."""
        self._is_closed = True
        undisturbed(self._channel.close)

    def _begun(self, call: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """What a call gives, or begins."""
        try:
            return call(*given, **options)
        except ValueError:
            if self._is_closed:
                raise CallFailed(grpc.StatusCode.CANCELLED, "the client was closed") from None
            raise


class CallFailed(grpc.RpcError):
    """How a call ended, without the call."""

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str | None,
        metadata: tuple[Any, ...] = (),
        initial: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(details)
        self._end = (code, details, metadata)
        self._initial = initial

    def code(self) -> grpc.StatusCode:
        """See `grpc.Call`."""
        return self._end[0]

    def details(self) -> str | None:
        """See `grpc.Call`."""
        return self._end[1]

    def initial_metadata(self) -> tuple[Any, ...]:
        """See `grpc.Call`."""
        return self._initial

    def trailing_metadata(self) -> tuple[Any, ...]:
        """See `grpc.Call`."""
        return self._end[2]


class _Held:
    """A call, or what is left of it. Whoever has this may drop it anywhere: `_held` keeps it until `drop` was done."""

    def __init__(self) -> None:
        self._call: Any = None
        self._is_dropped = False
        _held.add(self)

    def begin(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Calls."""
        self._call = function(*args, **kwargs)
        if self._is_dropped:
            self._call = None

    def read(self) -> Any:
        """The next message; `grpc.aio.EOF` after the last; what it failed with is returned."""
        try:
            return next(self._call, grpc.aio.EOF)
        except grpc.RpcError as error:
            # gRPC raises the call itself, and whoever gets an exception holds each frame that it went through.
            return CallFailed(
                *(error.code(), error.details(), error.trailing_metadata() or ()),
                # As of the trailing metadata, which the stubs have.
                initial=cast(Any, error).initial_metadata() or (),
            )

    def cancel(self) -> bool:
        """Ends the call. Returns whether it had not ended."""
        return bool(self._call.cancel())

    def drop(self) -> None:
        """Lets go of the call, which ends it."""
        self._is_dropped = True
        self._call = None
        _held.discard(self)


_held: set[_Held] = set()


class BlockingRead:
    """A call that answers with a stream."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._held = _Held()
        undisturbed(self._held.begin, function, *args, **kwargs)

    async def read(self) -> Any:
        """The next message; `grpc.aio.EOF` after the last."""
        message = undisturbed(self._held.read)
        if isinstance(message, CallFailed):
            raise message
        return message

    def cancel(self) -> bool:
        """Ends the call. Returns whether it had not ended."""
        return undisturbed(self._held.cancel)

    def __del__(self) -> None:
        undisturbed_later(self._held.drop)
