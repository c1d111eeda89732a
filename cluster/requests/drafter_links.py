"""A coordinator's links to the replicas of drafters, which are everybody's, whichever model a request is for; and the drafters that requests can name."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.link_tasks import LinkTasks
from outrider.cluster.links.stream_link import LinkCounts
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.roster.roster import EMPTY, Absent, Role, Roster
from outrider.cluster.validation.limits import KnownDrafter
from outrider.v1 import target_pb2

T = TypeVar("T")


def hello_of(settings: CoordinatorSettings) -> target_pb2.Hello:
    """What introduces a coordinator."""
    return target_pb2.Hello(
        protocol_version=PROTOCOL_VERSION, name=settings.name, incarnation=settings.incarnation
    )


class DrafterLinks(Mapping[str, DraftLink]):
    """The link to every replica of every drafter, by its name. Lives on one event loop."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        on_up: Callable[[str], None],
        on_defect: Callable[[str], None],
    ) -> None:
        """Takes whom to call.

        Args:
            settings: What the coordinator was told.
            on_up: Called with the name of a replica that has connected.
            on_defect: As of `LinkTasks`.
        """
        self.next_session: Callable[[], int] = itertools.count(1).__next__
        """Numbers sessions: a stream to a drafter knows them by that, of whatever model they are."""
        self.counts: dict[str, LinkCounts] = {}
        """By replica, over its restarts: each is a link to another address."""
        self._settings = settings
        self._on_up = on_up
        self._links: dict[str, DraftLink] = {}
        self._tasks = LinkTasks(on_defect)
        self._roster = EMPTY

    def __getitem__(self, name: str) -> DraftLink:
        return self._links[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    @property
    def away(self) -> list[Absent]:
        """Replicas that are to be there and are not."""
        return [one for one in self._roster.absent if one.role is Role.DRAFTER]

    def start(self) -> None:
        """Connects to everyone known from the start."""
        for name, address in self._settings.drafters:
            self._add(name, address)

    def update(self, roster: Roster) -> None:
        """Takes in who is alive. A link that works is kept even if its actor is not on the roster: the stream knows
        better than a lease."""
        self._roster = roster
        members = [one for one in roster.members if one.role is Role.DRAFTER]
        for member in members:
            link = self._links.get(member.name)
            if link is not None and link.address != member.address:
                self._remove(member.name)
            if member.name not in self._links:
                self._add(member.name, member.address)
            link = self._links[member.name]
            link.entry, link.is_leaving = member.model or member.name, member.is_draining
        known = {member.name for member in members} | dict(self._settings.drafters).keys()
        for name in [one for one in self._links if one not in known]:
            if not self._links[name].is_up:
                self._remove(name)

    async def stop(self) -> None:
        """Breaks all links."""
        await self._tasks.stop()

    def _add(self, name: str, address: str) -> None:
        link = DraftLink(
            name,
            address,
            hello_of(self._settings),
            on_up=lambda link: self._on_up(link.name),
            credentials=self._settings.credentials,
        )
        link.on_break = self._look_again
        link.counts = self.counts.setdefault(name, link.counts)
        self._links[name] = link
        self._tasks.run(f"drafter {name}", link.run())

    def _look_again(self) -> None:
        """Who has left the roster is gone once the stream has broken. Later: the link is still at work."""
        asyncio.get_running_loop().call_soon(lambda: self.update(self._roster))

    def _remove(self, name: str) -> None:
        self._tasks.remove(f"drafter {name}")
        del self._links[name]


def replicas_of(links: Iterable[DraftLink]) -> dict[str, list[DraftLink]]:
    """The replicas of each drafter."""
    found: dict[str, list[DraftLink]] = {}
    for link in links:
        found.setdefault(link.entry, []).append(link)
    return found


def known_drafters(
    links: Iterable[DraftLink], away: Iterable[Absent], misfit: Callable[[DraftLink], str]
) -> tuple[KnownDrafter, ...]:
    """What requests are checked against.

    Args:
        links: To the replicas of all drafters.
        away: Replicas that should be there and are not: requests may name their drafters, and are joined by them once they are.
        misfit: Why a replica cannot serve the model; empty if it can, or if that is not known yet.
    """
    there = {name: _united(name, replicas, misfit) for name, replicas in replicas_of(links).items()}
    expected: dict[str, KnownDrafter] = {}
    for one in away:
        lost = f"it was given up: {one.reason}" if one.state == ActorState.FAILED else ""
        if one.model not in there and (one.model not in expected or not lost):
            expected[one.model] = KnownDrafter(name=one.model, verifiers=(), mismatch=lost)
    return (*there.values(), *expected.values())


def _united(
    name: str, replicas: list[DraftLink], misfit: Callable[[DraftLink], str]
) -> KnownDrafter:
    """A drafter can what one of its replicas can: they differ while they are exchanged for others."""
    fits = [link for link in replicas if not misfit(link)]
    return KnownDrafter(
        name=name,
        verifiers=_union(link.verifiers for link in fits or replicas),
        draft_lengths=_union(link.draft_lengths for link in fits or replicas),
        mismatch="" if fits else misfit(replicas[0]),
    )


def _union(offers: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one for offer in offers for one in offer))
