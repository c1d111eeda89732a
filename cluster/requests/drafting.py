"""Which drafters work for one sequence, from one opening of its session to the next.

Off the way of the tokens: everything here only puts messages on queues. The target is told the request's whole ordered
list when the session is opened, because `Token.drafter` counts in it, and from then on only who is at work.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping

from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.target_link import TargetLink
from outrider.v1 import draft_pb2

RETRY_S = 0.5
"""Seconds before a drafter that gave a session up is asked again: longer than a reconnection to the target takes."""

MAX_TRIES = 4
"""Times that one drafter is asked for one opening of a session; then it has its reasons."""


class Drafting:
    """The drafters of one opened session."""

    def __init__(
        self,
        *,
        session: int,
        group: int,
        names: tuple[str, ...],
        limit: int | None,
        links: Mapping[str, DraftLink],
        target: TargetLink,
        attach: Callable[[], draft_pb2.AttachSession],
    ) -> None:
        """Takes what attaching needs.

        Args:
            session: Number of the session.
            group: Number that sequences of its request share; 0: it has no siblings.
            names: The request's drafters, in order.
            limit: Drafters at work at a time, at most; None: all.
            links: The streams to all drafters, by name.
            target: Where the session is.
            attach: Makes the command, with the tokens committed by then.
        """
        self._session = session
        self._group = group
        self._names = names
        self._limit = limit
        self._links = links
        self._target = target
        self._attach = attach
        self._at_work: set[str] = set()
        self._told: tuple[str, ...] = names
        self._tries: dict[str, int] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_over = False

    def start(self) -> None:
        """Attaches the drafters that are there, if the target has use for them; otherwise once it has."""
        self._fill()

    def stop(self) -> None:
        """Detaches all of them."""
        self._is_over = True
        for timer in self._timers:
            timer.cancel()
        for link in self._links.values():
            link.leave(self)
        for name in self._at_work:
            if name in self._links:
                self._links[name].detach(self._session)
        self._at_work.clear()

    def on_up(self, name: str) -> None:
        """A drafter has connected again, so what it refused before is forgotten."""
        self._tries.pop(name, None)
        if name in self._names:
            self._fill()

    def on_room(self, name: str) -> None:
        """A drafter that was full is not any more."""
        if not self._is_over:
            self._fill()

    def on_detached(self, drafter: str, reason: str, *, can_retry: bool) -> None:
        """A drafter does not serve the session."""
        self._at_work.discard(drafter)
        if self._is_over:
            return
        if can_retry:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(RETRY_S, self._retry, drafter)
            self._timers.add(timer)
        else:
            self._tries[drafter] = MAX_TRIES
        self._fill(without=drafter)

    def _retry(self, drafter: str) -> None:
        self._timers = {timer for timer in self._timers if not timer.cancelled()}
        if not self._is_over:
            self._fill()

    def _fill(self, without: str = "") -> None:
        """Attaches as many as may be at work, the one that its siblings share and then the least busy
        first, and tells the target who that is.

        Those that are full are waited for: a session that began under load has its drafters once others have ended. None are
        attached while the target decodes plainly.
        """
        if not self._target.wants_drafters:
            return
        candidates = [
            name
            for name in self._names
            if name != without and name not in self._at_work and self._is_willing(name)
        ]
        full = [name for name in candidates if not self._links[name].has_room]
        candidates = [name for name in candidates if name not in full]
        home = self._home()
        candidates.sort(key=lambda name: (self._turn(name, home), self._links[name].num_sessions))
        room = len(self._names) if self._limit is None else self._limit - len(self._at_work)
        room = max(room, 0)
        for name in full if room > len(candidates) else ():
            self._links[name].wait_for_room(self)
        for name in candidates[:room]:
            self._tries[name] = self._tries.get(name, 0) + 1
            self._at_work.add(name)
            self._links[name].attach(self._attach(), self)
        working = self._in_order(self._at_work)
        if working != self._told:
            self._told = working
            self._target.steer(self._session, working)

    def _home(self) -> str:
        """The drafter that the request's sequences share; empty if none drafts them from each other. By a hash, so that sequences agree
        on it that never run at the same time."""
        readers = [
            name
            for name in self._names
            if self._is_willing(name) and self._links[name].reads_siblings
        ]
        if not self._group or not readers:
            return ""
        return max(readers, key=lambda name: zlib.crc32(f"{self._group} {name}".encode()))

    def _turn(self, name: str, home: str) -> int:
        """When a drafter is chosen: the shared one first, others that have no use for one sequence alone last."""
        if name == home:
            return 0
        return 2 if self._links[name].reads_siblings else 1

    def _is_willing(self, name: str) -> bool:
        link = self._links.get(name)
        return link is not None and link.is_up and self._tries.get(name, 0) < MAX_TRIES

    def _in_order(self, names: set[str]) -> tuple[str, ...]:
        return tuple(name for name in self._names if name in names)
