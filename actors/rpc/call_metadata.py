"""A gRPC channel whose calls all carry the same metadata.

Not an interceptor: one of those puts a task and a queue between a stream and its messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc


class CarryingChannel(grpc.aio.Channel):
    """Another channel, and the metadata of its calls."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        self._metadata = metadata

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._carrying(self._channel.unary_unary, *args, **kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._carrying(self._channel.unary_stream, *args, **kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._carrying(self._channel.stream_unary, *args, **kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._carrying(self._channel.stream_stream, *args, **kwargs)

    async def close(self, grace: float | None = None) -> None:
        """See `grpc.aio.Channel`."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See `grpc.aio.Channel`."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See `grpc.aio.Channel`."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See `grpc.aio.Channel`."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _carrying(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return functools.partial(make(*args, **kwargs), metadata=self._metadata)
