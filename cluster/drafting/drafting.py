"""Which drafters work for one sequence, from one opening of its session to the next.

Off the way of the tokens: everything here only puts messages on queues. The target is told the request's whole ordered
list when the session is opened, because `Token.drafter` counts in it, and from then on only who is at work.

Where fewer may work than there are, a selector chooses who. It is asked again after every stretch of text, and told what the
drafters at work proposed of it. One that gives way goes on until the new one has answered, so that nobody's text waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.actors.speculation.options import Speculation
from outrider.cluster.drafting.drafter_choice import DrafterChoice
from outrider.cluster.drafting.drafting_peers import Cancellable, DrafterPeer, Later, TargetPeer
from outrider.v1 import draft_pb2

RETRY_S = 0.5
"""Seconds before a drafter that gave a session up is asked again: longer than a reconnection to the target takes."""

MAX_TRIES = 4
"""Times that one drafter may give one opening of a session up; then it has its reasons."""

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
            links: The streams to all drafters, by name.
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
        self._at_work: set[str] = set()
        self._leaving: set[str] = set()
        """Of those, who goes once another one has answered."""
        self._told: tuple[str, ...] = names
        self._tries: dict[str, int] = {}
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

    # -- what drafters tell ----------------------------------------------------------------------------------------

    def on_up(self, name: str) -> None:
        """A drafter has connected again, so what it refused before is forgotten."""
        self._tries.pop(name, None)
        if name in self._names:
            self._fill()

    def on_room(self, name: str) -> None:
        """A drafter that was full is not any more."""
        if not self._is_over:
            self._fill()

    def on_attached(self, drafter: str) -> None:
        """A drafter serves the session, so who waited for that may go."""
        if self._is_over or drafter not in self._at_work - self._leaving:
            return
        self._drop(self._leaving)
        self._leaving = set()
        self._choice.begin()
        self._tell()

    def on_detached(self, drafter: str, reason: str, *, can_retry: bool) -> None:
        """A drafter does not serve the session."""
        self._at_work.discard(drafter)
        if drafter in self._leaving:
            self._leaving.discard(drafter)
        else:
            # Whoever was to give way to it stays.
            self._leaving.clear()
        if self._is_over:
            return
        self._tries[drafter] = self._tries.get(drafter, 0) + 1 if can_retry else MAX_TRIES
        if can_retry:
            self._timers.append(self._later(RETRY_S, self._retry))
        self._fill(without=drafter)

    def _settle(self) -> None:
        """Takes in what those at work proposed. While the target has drafters rest that is nothing, of those at work and of those who would
        be: with them drafting did not pay, and when it is tried again others may come first."""
        working = self._in_order(self._at_work) or self._best()
        self._choice.settle({name: self._links[name] for name in working if name in self._links})

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
        taken = {self._links[name].entry for name in self._at_work if name in self._links}
        candidates = [
            name
            for name in self._names
            if name != without and self._is_willing(name) and self._links[name].entry not in taken
        ]
        full = [name for name in candidates if not self._links[name].has_room]
        ranked = self._ranked([name for name in candidates if name not in full])
        room = max(self._limit - len(self._at_work), 0)
        served = {self._links[name].entry for name in ranked}
        for name in full if room > len(ranked) else ():
            if self._links[name].entry not in served:
                self._links[name].wait_for_room(self)
        if ranked and room:
            self._add(ranked[:room])
        self._tell()

    def _choose(self) -> None:
        """Looks at the choice again."""
        if not self._target.wants_drafters or self._leaving:
            return
        best = self._best()
        new, old = [name for name in best if name not in self._at_work], self._at_work - set(best)
        if new:
            log.debug("drafters change", session=self._session, before=self._told, after=best)
            self._leaving = old
            self._add(new)
        elif best:
            # More than may be, since one that others were to give way to has gone.
            self._drop(old)
        self._tell()

    def _add(self, names: Sequence[str]) -> None:
        for name in names:
            self._at_work.add(name)
            self._links[name].attach(self._attach(), self)
        self._choice.begin()

    def _drop(self, names: set[str]) -> None:
        self._at_work -= names
        for name in self._in_order(names):
            if name in self._links:
                self._links[name].detach(self._session)

    def _best(self) -> list[str]:
        """Who should be at work."""
        able = [
            name
            for name in self._names
            if self._is_willing(name) and (name in self._at_work or self._links[name].has_room)
        ]
        return self._ranked(able)[: self._limit]

    def _tell(self) -> None:
        working = self._in_order(self._at_work)
        if working != self._told:
            self._told = working
            self._target.steer(self._session, working)

    def _ranked(self, names: Sequence[str]) -> list[str]:
        willing = {name: self._links[name] for name in self._names if self._is_willing(name)}
        return self._choice.ranked(names, willing, self._at_work)

    def _is_willing(self, name: str) -> bool:
        link = self._links.get(name)
        return link is not None and link.is_up and self._tries.get(name, 0) < MAX_TRIES

    def _in_order(self, names: set[str]) -> tuple[str, ...]:
        return tuple(name for name in self._names if name in names)
