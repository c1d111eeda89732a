"""A supervisor whose load changes, over actors that are no processes and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.cluster.autoscale.telling import coordinator, drafter, target
from tests.cluster.in_process import InProcessHost, until

from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.config.config_service import ClusterConfig
from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_specs import ActorSpec, actor_specs
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.roster.roster import ReplicaScale, Role
from outrider.cluster.supervise.applying import Applier
from outrider.cluster.supervise.autoscaler import Autoscaler
from outrider.cluster.supervise.observed_load import Told
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

CONFIG: dict[str, Any] = {
    "targets": [{"model": "org/t", "max_replicas": 3}],
    "drafters": [{"model": "org/d"}],
    "autoscaling": {
        "interval_s": 1.0,
        "upscale_delay_s": 10.0,
        "downscale_delay_s": 100.0,
        "drain_s": 0.0,
    },
}


class SlowHost(InProcessHost):
    """One where room is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.Event()
        self.room.set()

    async def wait_for_room(
        self, specs: tuple[ActorSpec, ...], *, timeout_s: float, tell: Callable[[str], None]
    ) -> None:
        """Waits for ever for room."""
        await self.room.wait()
        await super().wait_for_room(specs, timeout_s=timeout_s, tell=tell)


class Running:
    """A supervisor and its autoscaler."""

    def __init__(self) -> None:
        self.host = SlowHost()
        self.texts = 0
        self.now_s = 0.0
        config = parse_config(CONFIG, source="test")
        settings = SupervisorSettings(cluster=ClusterConfig(lease_s=5.0, start_timeout_s=60.0))
        self.supervisor = Supervisor(actor_specs(config), self.host, settings)
        self.applier = Applier(config, self.supervisor)
        self.supervisor.servicer.apply = self.applier.apply
        self.autoscaler = Autoscaler(self.applier, self._look, clock_s=lambda: self.now_s)

    async def _look(self) -> list[Told]:
        """As many texts run as there are slots for, eight at a target; the others wait."""
        targets = sorted(self.of(Role.TARGET))
        held = [max(0, min(8, self.texts - 8 * index)) for index in range(len(targets))]
        told = [coordinator(self.texts - sum(held))]
        told += [target(name, used, 0.0) for name, used in zip(targets, held, strict=True)]
        return [*told, drafter("d", 64)]

    def of(self, role: Role) -> set[str]:
        """Names of the actors of a role that serve."""
        statuses = self.supervisor.status()
        return {s.name for s in statuses if s.role is role and s.state is ActorState.SERVING}

    @property
    def scale(self) -> ReplicaScale:
        """What everyone is told of the targets."""
        return self.supervisor.servicer.roster.scales[0]

    async def look(self, seconds: int) -> None:
        """Looks once a second, and lets what follows from it be carried out as far as it can."""
        for _ in range(seconds):
            self.now_s += 1.0
            await self.autoscaler.step()
            for _ in range(5):
                await asyncio.sleep(0)

    async def settles(self, number: int) -> None:
        """Waits for so many targets, and for the end of the change."""
        await until(lambda: len(self.of(Role.TARGET)) == number and not self.applier.is_busy)

    async def apply(self, **sections: Any) -> None:
        """Applies the configuration with these sections."""
        address, credentials = self.supervisor.admin
        request = cluster_pb2.ApplyRequest(config_json=json.dumps({**CONFIG, **sections}))
        async with internal_channel(address, credentials) as channel:
            stub = cluster_pb2_grpc.ClusterServiceStub(channel)
            async with asyncio.timeout(60.0):
                async for _ in stub.Apply(request):
                    pass


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Launched; stopped with the test."""
    made = Running()
    await made.supervisor.launch()
    yield made
    await made.supervisor.stop(0.0)


async def test_replicas_come_and_go_and_everyone_is_told_why(running: Running) -> None:
    """Those that stay keep their names and are not touched."""
    running.texts = 12
    await running.look(12)
    await running.settles(2)
    assert running.of(Role.TARGET) == {"t", "t-1"}
    assert running.scale == ReplicaScale(
        entry="t",
        role=Role.TARGET,
        least=1,
        most=3,
        wanted=2,
        reason="8 texts run and 4 wait, with 8 slots",
    )
    running.texts = 3
    await running.look(130)
    await running.settles(1)
    assert running.of(Role.TARGET) == {"t"}
    assert (running.scale.wanted, len(running.host.of("t"))) == (1, 1)
    assert "at most 3 texts" in running.scale.reason


async def test_what_finds_no_room_is_told_and_not_asked_for_all_the_time(running: Running) -> None:
    """The pauses grow; once there is room they come one by one, because nobody knows for how many."""
    running.texts = 24
    running.host.has_room = False
    await running.look(11)
    await until(lambda: "no node has any target_node" in running.scale.reason)
    assert (running.scale.wanted, running.of(Role.TARGET)) == (3, {"t"})
    assert running.scale.reason.endswith("tried again in 10 s")
    await running.look(11)
    await until(lambda: running.scale.reason.endswith("tried again in 20 s"))
    assert running.scale.wanted == 3
    running.host.has_room = True
    await running.look(15)
    assert running.of(Role.TARGET) == {"t"}
    await running.look(6)
    await until(lambda: running.applier.replicas["t"] == 2)
    await running.look(1)
    await running.settles(3)
    assert "no node" not in running.scale.reason


async def test_a_need_that_is_gone_is_not_told_any_more(running: Running) -> None:
    """Nor waited for."""
    running.texts = 24
    running.host.room.clear()
    await running.look(12)
    assert (running.applier.is_busy, running.scale.wanted) == (True, 3)
    running.texts = 0
    await running.look(80)
    assert running.applier.is_busy, "a pause is no end"
    await running.look(30)
    await until(lambda: not running.applier.is_busy)
    assert (running.scale.wanted, running.scale.reason) == (1, "")
    running.host.room.set()
    await running.look(20)
    assert running.of(Role.TARGET) == {"t"}


async def test_what_someone_asks_for_goes_before(running: Running) -> None:
    """A change that waits for room is given up for it; the number of replicas survives it."""
    running.texts = 12
    await running.look(12)
    await running.settles(2)
    running.texts = 24
    running.host.room.clear()
    await running.look(12)
    assert running.applier.is_busy
    running.host.room.set()
    await running.apply(drafters=[])
    assert running.of(Role.DRAFTER) == set()
    assert {"t", "t-1"} <= running.of(Role.TARGET)
    # Another number is what is asked for, and bounds hold at once.
    await running.apply(
        drafters=[],
        targets=[{"model": "org/t", "replicas": 2, "max_replicas": 2, "min_replicas": 1}],
    )
    assert running.of(Role.TARGET) == {"t", "t-1"}


async def test_one_that_comes_while_its_predecessor_ends_has_a_name_of_its_own(
    running: Running,
) -> None:
    """Both are there for a while, and neither takes the other's place."""
    running.texts = 12
    await running.look(12)
    await running.settles(2)
    await running.apply(autoscaling={**CONFIG["autoscaling"], "drain_s": 600.0})
    running.texts = 3
    await running.look(130)
    await until(lambda: running.of(Role.TARGET) == {"t"})
    running.texts = 12
    await running.look(12)
    await until(lambda: len(running.of(Role.TARGET)) == 2)
    (fresh,) = running.of(Role.TARGET) - {"t"}
    assert fresh.startswith("t-1.")
    draining = [s.name for s in running.supervisor.status() if s.state is ActorState.DRAINING]
    assert draining == ["t-1"]


async def test_a_shortage_ends_with_the_entry_that_had_it(running: Running) -> None:
    """One of the same name that comes later is not careful because of it, nor is anything else short."""
    running.texts = 24
    running.host.has_room = False
    await running.look(11)
    await until(lambda: running.scale.reason.endswith("tried again in 10 s"))
    running.host.has_room = True
    await running.apply(targets=[{"model": "org/u", "max_replicas": 3}])
    await running.look(1)
    await running.apply()
    await running.look(12)
    await until(lambda: not running.applier.is_busy)
    assert running.applier.replicas["t"] == 3


async def test_a_time_without_looks_says_nothing_of_the_load(running: Running) -> None:
    """The number was fixed for hours; then one look at a service that pauses ends nobody."""
    running.texts = 12
    await running.look(12)
    await running.settles(2)
    await running.apply(targets=[{"model": "org/t", "replicas": 2}])
    await running.look(1)
    running.now_s += 7_200.0
    running.texts = 0
    bounds = {"replicas": 2, "min_replicas": 1, "max_replicas": 3}
    await running.apply(targets=[{"model": "org/t", **bounds}])
    await running.look(50)
    assert running.of(Role.TARGET) == {"t", "t-1"}
    await running.look(60)
    await running.settles(1)
