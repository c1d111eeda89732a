"""A coordinator's links to drafters: everybody's, whichever model a request is for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.link_tasks import LinkTasks
from outrider.cluster.roster.roster import EMPTY, Absent, Role, Roster
from outrider.v1 import target_pb2


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
            self._links[member.name].entry = member.model or member.name
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
        self._links[name] = link
        self._tasks.run(f"drafter {name}", link.run())

    def _remove(self, name: str) -> None:
        self._tasks.remove(f"drafter {name}")
        del self._links[name]
