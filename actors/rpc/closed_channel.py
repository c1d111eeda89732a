"""What a call ends with where another task has closed its channel: an error, and not the cancellation that gRPC makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class ChannelClosed(ConnectionError):
    """The channel of a call was closed before its answer came."""


@contextmanager
def telling_closed() -> Iterator[None]:
    """Around the waits for a call on a channel that belongs to another task.

    gRPC ends such a call with `asyncio.CancelledError`, which would end the task that waits: a handler then never answers its client.

    Raises:
        ChannelClosed: The call was ended so. A cancellation of the task itself is passed on.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ChannelClosed("the connection was closed before the answer came") from None
