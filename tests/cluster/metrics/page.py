"""A whole service in this process, and its page of metrics as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.served.test_together import Together

from outrider.actors.rpc.credentials import OPEN
from outrider.cluster.metrics.federation import Federation
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.roster import Member, ReplicaScale, Role, Roster

SCALES = (
    ReplicaScale(entry="table", role=Role.TARGET, least=1, most=2, wanted=2),
    ReplicaScale(entry="table", role=Role.DRAFTER, least=1, most=1, wanted=1),
)
"""What the supervisor of that service would say."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class Page:
    """What was scraped."""

    families: dict[str, Metric]
    """By name, as the parser gives it: counters without `_total`."""

    def total(self, name: str, **labels: str) -> float:
        """Sum of the samples of this name that carry these labels."""
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no sample {name} {labels}"
        return sum(found)

    @property
    def labels(self) -> dict[str, set[str]]:
        """By name of the sample, the names of its labels."""
        found: dict[str, set[str]] = {}
        for family in self.families.values():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        return found


def parsed(text: str) -> Page:
    """A page, each metric of which occurs once."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return Page({family.name: family for family in families})


class Scraped:
    """The page of a service of one coordinator, one target and one drafter."""

    def __init__(self, together: Together) -> None:
        self.together = together
        self.statuses: list[ActorStatus] = []
        self.members: list[Member] = []
        self.num_pages = 0
        """How often everyone was asked."""
        self.federation = Federation(
            self._statuses,
            lambda: Roster(version=1, members=tuple(self.members), scales=SCALES),
            OPEN,
        )

    async def start(self) -> None:
        """Knows everyone."""
        together = self.together
        internal = together.front.coordinator.internal_address
        self.add("coordinator", Role.COORDINATOR, together.front.address, internal_address=internal)
        self.add("target-0", Role.TARGET, together.target_address)
        self.add("draft-0", Role.DRAFTER, together.drafter.internal_address)

    async def stop(self) -> None:
        """Ends."""
        await self.federation.close()

    def add(
        self,
        name: str,
        role: Role,
        address: str,
        *,
        internal_address: str = "",
        state: ActorState = ActorState.SERVING,
        restarts: int = 0,
    ) -> None:
        """Someone who should be there, and is."""
        self.statuses.append(
            ActorStatus(name=name, role=role, model="table", state=state, restarts=restarts)
        )
        self.members.append(
            Member(
                name=name,
                role=role,
                address=address,
                incarnation=1,
                model="table",
                pid=1,
                node_id="",
                internal_address=internal_address,
            )
        )

    async def page(self) -> Page:
        """Scrapes."""
        return parsed(await self.federation.page())

    def _statuses(self) -> Sequence[ActorStatus]:
        self.num_pages += 1
        return self.statuses
