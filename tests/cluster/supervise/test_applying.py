"""A supervisor that is told to become another service, over actors that are no processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NoReturn, cast

import grpc
import pytest
from tests.cluster.in_process import InProcessHost, crashes, refusals, until

from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.config.config_service import ClusterConfig, Restarts
from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_specs import actor_specs
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.roster.roster_wire import roster_from_proto
from outrider.cluster.supervise.applying import Applier
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

QUICK = Restarts(backoff_s=0.01, max_backoff_s=0.02)
BEFORE: dict[str, Any] = {
    "targets": [{"model": "org/t", "replicas": 2}],
    "drafters": [{"model": "org/d"}],
}


class Aborted(Exception):
    """A call that ended with an error."""


class Aborting:
    """A call without a connection."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """Ends the call."""
        raise Aborted(details)


class Running:
    """A supervisor, and whoever changes it."""

    def __init__(self) -> None:
        self.host = InProcessHost()
        config = parse_config(BEFORE, source="test")
        self.supervisor = Supervisor(
            actor_specs(config),
            self.host,
            SupervisorSettings(
                cluster=ClusterConfig(lease_s=5.0, restarts=QUICK, start_timeout_s=60.0)
            ),
        )
        self.supervisor.servicer.apply = Applier(config, self.supervisor).apply

    @property
    def serving(self) -> set[str]:
        """Names of the actors that serve."""
        return {s.name for s in self.supervisor.status() if s.state is ActorState.SERVING}

    async def absent(self) -> set[str]:
        """Names of the actors that `outrider status` would show as not ready."""
        address, credentials = self.supervisor.admin
        async with internal_channel(address, credentials) as channel:
            stub = cluster_pb2_grpc.ClusterServiceStub(channel)
            async for message in stub.WatchRoster(cluster_pb2.WatchRosterRequest(name="test")):
                return {one.name for one in roster_from_proto(message).absent}
        raise AssertionError("there is no roster")

    async def apply(
        self, *, drain_s: float = 0.0, is_dry_run: bool = False, **sections: Any
    ) -> list[cluster_pb2.ApplyEvent]:
        """Applies a configuration with these sections, and waits for the end of what it replaces."""
        address, credentials = self.supervisor.admin
        request = cluster_pb2.ApplyRequest(
            config_json=json.dumps({**BEFORE, **sections}), drain_s=drain_s, is_dry_run=is_dry_run
        )
        async with internal_channel(address, credentials) as channel:
            stub = cluster_pb2_grpc.ClusterServiceStub(channel)
            async with asyncio.timeout(60.0):
                return [event async for event in stub.Apply(request)]


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Launched; stopped with the test."""
    made = Running()
    await made.supervisor.launch()
    yield made
    await made.supervisor.stop(0.0)


def changes(events: list[cluster_pb2.ApplyEvent]) -> list[tuple[str, str]]:
    """What the plan says."""
    return [(change.kind, change.name) for change in events[0].plan.changes]


async def test_a_plan_alone_changes_nothing(running: Running) -> None:
    """It names what would be done."""
    events = await running.apply(is_dry_run=True, drafters=[])
    assert changes(events) == [("remove", "d")]
    assert len(events) == 1
    assert running.serving == {"t", "t-1", "d", "coordinator"}


async def test_what_needs_no_new_actor_is_named(running: Running) -> None:
    """Once; then it holds."""
    sections: dict[str, Any] = {
        "targets": [{"model": "org/t", "replicas": 2, "max_replicas": 4}],
        "autoscaling": {"interval_s": 9.0},
    }
    told = [
        "autoscaling.interval_s (5.0 to 9.0): needs no new actor",
        "targets.t.max_replicas (None to 4): needs no new actor",
    ]
    for is_dry_run, expected in ((True, told), (False, told), (False, [])):
        events = await running.apply(is_dry_run=is_dry_run, **sections)
        assert changes(events) == []
        assert [one.progress for one in events if one.HasField("progress")] == expected


async def test_drafters_come_and_go(running: Running) -> None:
    """The new one serves before the old one ends; the others are not touched."""
    events = await running.apply(drafters=[{"model": "org/e"}])
    assert changes(events) == [("add", "e"), ("remove", "d")]
    assert running.serving == {"t", "t-1", "e", "coordinator"}
    assert len(running.host.of("t")) == len(running.host.of("coordinator")) == 1
    assert running.supervisor.configured.keys() == {"t", "t-1", "e", "coordinator"}
    assert changes(await running.apply(drafters=[{"model": "org/e"}])) == []


async def test_changes_leave_no_tasks_behind(running: Running) -> None:
    """A service that follows its load is changed for as long as it runs."""
    await running.apply(drafters=[{"model": "org/e"}])
    num_tasks = len(running.supervisor._tasks)
    for model in ("org/d", "org/e"):
        await running.apply(drafters=[{"model": model}])
    await until(lambda: len(running.supervisor._tasks) == num_tasks, timeout_s=20.0)


async def test_a_model_is_exchanged_as_a_whole(running: Running) -> None:
    """New targets and a new coordinator at the old one's address; the old ones end, the coordinator before its targets."""
    running.host.order.clear()
    events = await running.apply(targets=[{"model": "org/u", "name": "t", "replicas": 2}])
    assert {change[0] for change in changes(events)} == {"replace"}
    assert running.serving == {"t.2", "t-1.2", "d", "coordinator.2"}
    started = [name for what, name in running.host.order if what == "start"]
    ended = [name for what, name in running.host.order if what == "end"]
    assert (set(started[:2]), started[2:]) == ({"t.2", "t-1.2"}, ["coordinator.2"])
    assert (ended[:1], set(ended[1:])) == (["coordinator"], {"t", "t-1"})
    order = running.host.order
    assert order.index(("start", "coordinator.2")) < order.index(("end", "coordinator"))
    successor = running.host.of("coordinator.2")[0].settings
    assert successor.listen == running.host.address
    assert successor.shares_port  # type: ignore[union-attr]  # a coordinator's


async def test_what_cannot_start_changes_nothing(running: Running) -> None:
    """The reason is told; nothing of the new stays, and a later attempt works."""
    running.host.failures["t-2"] = refusals("no such folder")
    more = [{"model": "org/t", "replicas": 3}]
    with pytest.raises(grpc.aio.AioRpcError, match="no such folder") as failed:
        await running.apply(targets=more, drafters=[])
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert running.serving == {"t", "t-1", "d", "coordinator"}
    assert await running.absent() == set()
    await running.apply(targets=more)
    assert running.serving == {"t", "t-1", "t-2", "d", "coordinator"}


async def test_a_replacement_that_cannot_start_is_not_missed_afterwards(running: Running) -> None:
    """Nobody is told for ever of an actor that there is not and will not be."""
    running.host.failures["d.2"] = refusals("no such folder")
    with pytest.raises(grpc.aio.AioRpcError, match="no such folder"):
        await running.apply(drafters=[{"model": "org/d", "max_context": 64}])
    assert running.serving == {"t", "t-1", "d", "coordinator"}
    assert await running.absent() == set()


async def test_bad_configurations_are_refused(running: Running) -> None:
    """With every problem; and what needs a restart."""
    for sections, code in (
        ({"targets": [{"modle": "t"}]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"cluster": {"lease_s": 7.0}}, grpc.StatusCode.FAILED_PRECONDITION),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.apply(**sections)
        assert refused.value.code() is code
    assert running.serving == {"t", "t-1", "d", "coordinator"}


async def test_new_actors_are_kept_alive_and_old_ones_are_not(running: Running) -> None:
    """A crash after the change is a crash like any other."""
    await running.apply(drafters=[{"model": "org/e"}])
    running.host.failures["e"] = crashes(1)
    await running.host.of("e")[0].die()
    await until(lambda: len(running.host.of("e")) == 3 and "e" in running.serving)
    assert len(running.host.of("d")) == 1


async def test_two_changes_at_once_are_one_and_a_refusal(running: Running) -> None:
    """However slowly their callers read the plan: nobody carries out one that another change has overtaken."""
    apply = running.supervisor.servicer.apply
    assert apply is not None
    request = cluster_pb2.ApplyRequest(config_json=json.dumps({**BEFORE, "drafters": []}))
    first, second = (apply(request, cast(Any, Aborting())) for _ in range(2))
    events = [await anext(first)]
    with pytest.raises(Aborted, match="another change"):
        await anext(second)
    events += [event async for event in first]
    assert events[-1].progress == "drafter d: ended"
    assert running.serving == {"t", "t-1", "coordinator"}


async def test_the_end_of_what_one_change_replaced_lets_no_third_into_the_second(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change may begin while the old ones of the last drain. When they have ended it is still the one that is carried out."""
    (replaced,) = running.host.of("d")
    may_end = asyncio.Event()
    end = replaced.stop

    async def drains(grace_s: float) -> None:
        await may_end.wait()
        await end(grace_s)

    monkeypatch.setattr(replaced, "stop", drains)
    first = asyncio.create_task(running.apply(drafters=[{"model": "org/e"}]))
    await until(lambda: "d" not in running.supervisor.configured)
    may_load = running.host.slow["f"] = asyncio.Event()
    second = asyncio.create_task(running.apply(drafters=[{"model": "org/f"}]))
    await until(lambda: len(running.host.of("f")) == 1)
    may_end.set()
    await first
    with pytest.raises(grpc.aio.AioRpcError, match="another change") as refused:
        await running.apply(drafters=[{"model": "org/f"}, {"model": "org/g"}])
    assert refused.value.code() is grpc.StatusCode.ABORTED
    may_load.set()
    await second
    assert running.serving == {"t", "t-1", "f", "coordinator"}
    assert [len(running.host.of(name)) for name in ("e", "f", "g")] == [1, 1, 0]


async def test_no_actor_takes_the_name_that_a_replaced_one_runs_by(running: Running) -> None:
    """A model may be called as the second start of another one: neither takes the other's place."""
    old, new = [{"model": "org/llama3"}], [{"model": "org/llama3", "max_context": 64}]
    await running.apply(drafters=old)
    await running.apply(drafters=new)
    (named,) = running.serving - {"t", "t-1", "coordinator"}
    await running.apply(drafters=[*new, {"model": "org/other", "name": named}])
    assert len(running.serving) == 5
    assert [len(running.host.of(name)) for name in sorted(running.serving)] == [1] * 5


async def test_a_coordinator_that_is_away_is_replaced_at_its_address(running: Running) -> None:
    """Clients look for the service where it was, also if it died just before the change."""
    running.host.slow["coordinator"] = asyncio.Event()
    await running.host.of("coordinator")[0].die()
    await until(lambda: len(running.host.of("coordinator")) == 2)
    await running.apply(service={"max_waiting": 7})
    successor = running.host.of("coordinator.2")[0].settings
    assert successor.listen == running.host.address
    assert successor.shares_port  # type: ignore[union-attr]  # a coordinator's


async def test_actors_that_cannot_end_politely_end_and_those_behind_them_too(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The targets of a model that goes wait for their coordinator, whatever it says to that."""
    (coordinator,) = running.host.of("coordinator")

    async def refuses(grace_s: float) -> None:
        raise RuntimeError("a defect in the end")

    monkeypatch.setattr(coordinator, "stop", refuses)
    await running.apply(targets=[{"model": "org/u", "name": "t", "replicas": 2}])
    assert {name for what, name in running.host.order if what == "end"} == {
        "t",
        "t-1",
        "coordinator",
    }
    assert {one.state for one in running.supervisor.status()} == {ActorState.SERVING}


async def test_an_actor_that_is_away_and_told_to_go_does_not_come_back(running: Running) -> None:
    """What is left of its pause would have it start, and take sessions, while it is seen off."""
    running.host.failures["t-1"] = crashes(1_000)
    await running.host.of("t-1")[0].die()
    await until(lambda: len(running.host.of("t-1")) > 2)
    change = asyncio.create_task(running.apply(targets=[{"model": "org/t"}], drain_s=600.0))
    await until(lambda: "t-1" not in running.supervisor.configured)
    num_starts = len(running.host.of("t-1"))
    await change
    assert len(running.host.of("t-1")) == num_starts
    assert running.serving == {"t", "d", "coordinator"}
