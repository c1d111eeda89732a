"""Which drafters work for one sequence, from one opening of its session to the next.

A request names drafters of the configuration; each works through one of its replicas, whichever there are at the moment. Off the way of the
tokens: everything here only puts messages on queues. The target is told all replicas when the session is opened, so that nobody is early, and
from then on only those at work.

Where fewer may work than there are, a selector chooses who. It is asked again after every stretch of text, and told what the
drafters at work proposed of it. One that gives way goes on until the new one has answered, so that nobody's text waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

import structlog

from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.actors.speculation.options import Speculation
from outrider.cluster.drafting.drafter_choice import DrafterChoice, Replicas
from outrider.cluster.drafting.drafting_peers import Cancellable, DrafterPeer, Later, TargetPeer
from outrider.v1 import draft_pb2

RETRY_S = 0.5
"""Seconds before a replica that gave a session up is asked again: longer than a reconnection to the target takes."""

MAX_TRIES = 4
"""Times that one replica may give one opening of a session up; then it has its reasons."""

log = structlog.get_logger(__name__)


class Drafting:
    """The drafters of one opened session."""

    def __init__(
        self,
        *,
        session: int,
        names: tuple[str, ...],
        group: int,
        speculation: Speculation,
        records: DrafterRecords,
        links: Mapping[str, DrafterPeer],
        told: Mapping[str, int],
        target: TargetPeer,
        attach: Callable[[], draft_pb2.AttachSession],
        later: Later,
    ) -> None:
        """Takes what attaching needs.

        Args:
            session: Number of the session.
            names: The request's drafters, in order.
            group: Number that sequences of its request share; 0: it has no siblings.
            speculation: Of the request.
            records: What all sequences tell of each drafter; this one adds to it.
            links: The streams to the replicas of all drafters, by name.
            told: Whose candidates the target accepts now, as `accepted` says.
            target: Where the session is.
            attach: Makes the command, with the tokens committed by then.
            later: Calls back after a time.
        """
        self._session = session
        self._names = names
        most = speculation.drafters_at_work or SELECTORS[speculation.selector].at_work
        self._limit = len(names) if most is None else most
        self._choice = DrafterChoice(names, group, speculation, records)
        self._links = links
        self._target = target
        self._attach = attach
        self._later = later
        self._at_work: dict[str, str] = {}
        """The replica of each drafter at work."""
        self._leaving: set[str] = set()
        """Drafters at work that go once another one has answered."""
        self._told = dict(told)
        self._tries: dict[str, int] = {}
        """Of replicas."""
        self._timers: list[Cancellable] = []
        self._is_over = False

    def start(self) -> None:
        """Attaches the drafters that are there, if the target has use for them; otherwise once it has. Those that it has had rest may be the wrong
        ones, so the choice is looked at again."""
        if self._at_work and self._limit < len(self._names):
            self._settle()
            self._choose()
        self._fill()

    def stop(self) -> None:
        """Detaches all of them."""
        self._is_over = True
        self._settle()
        for timer in self._timers:
            timer.cancel()
        for link in self._links.values():
            link.leave(self)
        self._drop(set(self._at_work))

    def committed(self, origins: Sequence[int]) -> None:
        """The target has committed tokens.

        Args:
            origins: The drafter that proposed each, as an index into the names, -1: the target itself.
        """
        if self._limit < len(self._names) and self._choice.committed(origins):
            self._settle()
            self._choose()

    # -- what replicas tell ----------------------------------------------------------------------------------------

    def on_up(self, name: str) -> None:
        """A replica has connected, for the first time or again, so what it refused before is forgotten."""
        self._tries.pop(name, None)
        link = self._links.get(name)
        if link is not None and link.entry in self._names:
            self._fill()

    def on_room(self, name: str) -> None:
        """A replica that was full is not any more."""
        if not self._is_over:
            self._fill()

    def on_attached(self, drafter: str) -> None:
        """A replica serves the session, so who waited for that may go."""
        if self._is_over or self._working(drafter) in {None, *self._leaving}:
            return
        self._drop(self._leaving)
        self._leaving = set()
        self._choice.begin()
        self._tell()

    def on_detached(self, drafter: str, reason: str, *, can_retry: bool) -> None:
        """A replica does not serve the session."""
        name = self._working(drafter)
        if name is not None:
            del self._at_work[name]
        if name in self._leaving:
            self._leaving.discard(name)
        else:
            # Whoever was to give way to it stays.
            self._leaving.clear()
        if self._is_over:
            return
        self._tries[drafter] = self._tries.get(drafter, 0) + 1 if can_retry else MAX_TRIES
        if can_retry:
            self._timers.append(self._later(RETRY_S, self._retry))
        self._fill(without=drafter)

    def _working(self, replica: str) -> str | None:
        """The drafter that works through a replica."""
        return next((name for name, one in self._at_work.items() if one == replica), None)

    def _settle(self) -> None:
        """Takes in what those at work proposed. While the target has drafters rest that is nothing, of those at work and of those who would
        be: with them drafting did not pay, and when it is tried again others may come first."""
        self._choice.settle(self._at_work or self._best())

    def _retry(self) -> None:
        if not self._is_over:
            self._fill()

    # -- who is at work --------------------------------------------------------------------------------------------

    def _fill(self, without: str = "") -> None:
        """Attaches as many as may be at work, and tells the target who that is.

        Those that are full are waited for: a session that began under load has its drafters once others have ended. None are
        attached while the target decodes plainly.
        """
        if not self._target.wants_drafters:
            return
        willing = self._willing()
        able: Replicas = {}
        full: list[DrafterPeer] = []
        for name, replicas in willing.items():
            if name in self._at_work:
                continue
            there = {one: link for one, link in replicas.items() if one != without}
            free = {one: link for one, link in there.items() if link.has_room}
            if free:
                able[name] = free
            else:
                full += there.values()
        ranked = self._choice.ranked(able, willing, self._at_work)
        room = max(self._limit - len(self._at_work), 0)
        for link in full if room > len(ranked) else ():
            link.wait_for_room(self)
        self._add(dict(islice(ranked.items(), room)))
        self._tell()

    def _choose(self) -> None:
        """Looks at the choice again."""
        if not self._target.wants_drafters or self._leaving:
            return
        best = self._best()
        new = {name: one for name, one in best.items() if name not in self._at_work}
        old = self._at_work.keys() - best.keys()
        if new:
            log.debug(
                "drafters change",
                session=self._session,
                before=list(self._at_work),
                after=list(best),
            )
            self._leaving = old
            self._add(new)
        elif best:
            # More than may be, since one that others were to give way to has gone.
            self._drop(old)
        self._tell()

    def _add(self, replicas: Mapping[str, str]) -> None:
        """Puts drafters to work, each through the replica given."""
        if not replicas:
            return
        self._at_work |= replicas
        # The target hears of a replica before it hears the replica.
        self._tell()
        for one in replicas.values():
            self._links[one].attach(self._attach(), self)
        self._choice.begin()

    def _drop(self, names: Collection[str]) -> None:
        for one in [self._at_work.pop(name) for name in self._names if name in names]:
            if one in self._links:
                self._links[one].detach(self._session)

    def _best(self) -> dict[str, str]:
        """Who should be at work, each through which replica."""
        willing = self._willing()
        able: Replicas = {}
        for name, replicas in willing.items():
            own = self._at_work.get(name)
            free = {one: link for one, link in replicas.items() if one == own or link.has_room}
            if free:
                able[name] = free
        ranked = self._choice.ranked(able, willing, self._at_work)
        return dict(islice(ranked.items(), self._limit))

    def _willing(self) -> Replicas:
        """The replicas that take sessions, full or not, of each of the request's drafters."""
        found: Replicas = {name: {} for name in self._names}
        for one, link in self._links.items():
            if link.entry in found and link.is_up and self._tries.get(one, 0) < MAX_TRIES:
                found[link.entry][one] = link
        return {name: replicas for name, replicas in found.items() if replicas}

    def _tell(self) -> None:
        working = {
            self._at_work[name]: place
            for place, name in enumerate(self._names)
            if name in self._at_work
        }
        if working != self._told:
            self._told = working
            self._target.steer(self._session, working)


def accepted(names: Sequence[str], links: Mapping[str, DrafterPeer]) -> dict[str, int]:
    """Whose candidates a target is to take when a session is opened: every replica of the drafters.

    Args:
        names: The request's drafters, in order.
        links: The streams to the replicas of all drafters, by name.

    Returns:
        By replica, the place of its drafter.
    """
    places = {name: place for place, name in enumerate(names)}
    return {one: places[link.entry] for one, link in links.items() if link.entry in places}
