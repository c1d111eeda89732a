"""The streams of this drafter, one for each start of each target that it drafts for. On the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outrider.actors.draft.service.target_stream import TargetStream
from outrider.actors.draft.state.draft_events import Event, LinkLost


class TargetLinks:
    """Opens links when they are first needed and shares them."""

    def __init__(
        self, *, post: Callable[[Event], None], on_lost: Callable[[int, str], None], **stream: Any
    ) -> None:
        """
        Args:
            post: Takes events for the worker.
            on_lost: Told number and reason of a link that ended, after the worker was.
            stream: What else every `TargetStream` is given.
        """
        self._post = post
        self._on_lost = on_lost
        self._stream = stream
        self._links: dict[int, TargetStream] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._next_number = 1

    def find(self, number: int) -> TargetStream | None:
        """The open link with this number."""
        return self._links.get(number)

    async def get(self, address: str, incarnation: int) -> TargetStream:
        """The link to a start of a target, opened if it is not.

        Raises:
            LinkRefused: The target cannot be reached, is another start than meant, or refuses us.
        """
        # One at a time for an address, so that sessions attached together share a link.
        async with self._locks.setdefault(address, asyncio.Lock()):
            for link in self._links.values():
                if link.address == address and link.incarnation == incarnation and link.is_open:
                    return link
            link = TargetStream(
                self._next_number,
                address,
                incarnation=incarnation,
                post=self._post,
                on_lost=self._lost,
                **self._stream,
            )
            self._next_number += 1
            await link.open()
            self._links[link.number] = link
            return link

    async def close(self) -> None:
        """Ends every link."""
        await asyncio.gather(*(link.close() for link in list(self._links.values())))

    def _lost(self, link: TargetStream, reason: str) -> None:
        self._links.pop(link.number, None)
        self._post(LinkLost(link=link.number))
        self._on_lost(link.number, reason)
