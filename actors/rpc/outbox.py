"""Messages that wait for the one task that writes them to a stream.

An `asyncio.Queue` for this purpose and no other: a writer takes all that waits at once, so that it wakes once for several
messages and can unite them; and nothing is kept that nobody asks for.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """Messages for one stream. On one event loop; one task takes."""

    def __init__(self, capacity: int | None = None) -> None:
        """Makes an empty one.

        Args:
            capacity: Most messages that may wait; one more ends the stream, because its peer does not read. None: no bound.
        """
        self._capacity = capacity
        self._items: list[T] = []
        self._is_ended = False
        self.is_overrun = False
        """The stream ended because its peer did not read."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def num_waiting(self) -> int:
        """Messages that nobody has taken yet."""
        return len(self._items)

    def put(self, item: T) -> None:
        """Queues a message; after the end it is dropped."""
        if self._is_ended:
            return
        if len(self._items) == self._capacity:
            self.is_overrun = True
            self.end()
            return
        self._items.append(item)
        self._wake()

    def end(self) -> None:
        """Ends the stream at once: what is queued is dropped."""
        self._items.clear()
        self.finish()

    def finish(self) -> None:
        """Ends the stream after what is queued."""
        self._is_ended = True
        self._wake()

    async def take(self) -> list[T]:
        """Waits for messages and takes all, oldest first; none: the stream is to end."""
        while not self._items and not self._is_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        taken, self._items = self._items, []
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
