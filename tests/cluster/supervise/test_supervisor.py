"""What the supervisor does when actors start, die, fall silent or cannot work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from tests.cluster.in_process import InProcessHost, crashes, refusals, until

from outrider.actors.process.actor_runner import Identity
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.config.config_service import ClusterConfig, Restarts
from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_host import ActorCrashed, RunningActor
from outrider.cluster.placement.actor_specs import ActorSettings, ActorSpec, actor_specs
from outrider.cluster.placement.placement import PlacementError
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.roster import Roster
from outrider.cluster.roster.roster_wire import roster_from_proto
from outrider.cluster.supervise.actor_supervisor import LaunchFailed
from outrider.cluster.supervise.changes import plan
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

QUICK = Restarts(backoff_s=0.01, max_backoff_s=0.02)
SPECS = actor_specs(
    parse_config({"targets": [{"model": "t"}], "drafters": [{"model": "d"}]}, source="test")
)


class Running:
    """A supervisor over actors that are no processes."""

    def __init__(self) -> None:
        self.host = InProcessHost()
        self.paused_s = 0.0
        self.supervisor = Supervisor(
            SPECS,
            self.host,
            SupervisorSettings(
                cluster=ClusterConfig(lease_s=1.0, restarts=QUICK, start_timeout_s=60.0)
            ),
            clock_s=lambda: time.monotonic() + self.paused_s,
        )

    def status(self, name: str) -> ActorStatus:
        """What is told of one actor."""
        return next(status for status in self.supervisor.status() if status.name == name)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Not launched yet; stopped with the test."""
    made = Running()
    yield made
    await made.supervisor.stop(0.0)


async def rosters(address: str, credentials: Credentials, found: list[Roster]) -> None:
    """Collects what a watcher of the roster is told."""
    async with internal_channel(address, credentials) as channel:
        stub = cluster_pb2_grpc.ClusterServiceStub(channel)
        async for message in stub.WatchRoster(cluster_pb2.WatchRosterRequest(name="test")):
            found.append(roster_from_proto(message))


async def test_launch_starts_the_workers_before_the_coordinator(running: Running) -> None:
    """When clients can come, there is someone to serve them."""
    await running.supervisor.launch()

    assert [actor.identity.name for actor in running.host.starts] == ["t", "d", "coordinator"]
    assert {status.state for status in running.supervisor.status()} == {ActorState.SERVING}


async def test_dead_actor_is_started_again_with_a_greater_incarnation(running: Running) -> None:
    """And the others are left alone."""
    await running.supervisor.launch()
    await running.host.of("d")[0].die()
    await until(
        lambda: (
            running.status("d").restarts == 1 and running.status("d").state is ActorState.SERVING
        )
    )

    first, second = running.host.of("d")
    assert second.identity.incarnation > first.identity.incarnation
    assert len(running.host.of("t")) == 1


async def test_watchers_see_the_actor_go_and_come_back(running: Running) -> None:
    """The whole roster at once, then each change; never two starts of one actor, and nobody forgotten who comes back."""
    found: list[Roster] = []
    address = await running.supervisor.launch()
    watching = asyncio.create_task(
        rosters(address, running.host.starts[0].identity.credentials, found)
    )
    await until(lambda: bool(found) and len(found[-1].members) == 3)
    # Its next start waits until its end was told: what changes together may be told together.
    may_load = running.host.slow["d"] = asyncio.Event()
    await running.host.of("d")[0].die()
    await until(lambda: len(found[-1].members) == 2)
    may_load.set()
    await until(lambda: running.status("d").restarts == 1 and len(found[-1].members) == 3)
    watching.cancel()

    names = [[member.name for member in roster.members] for roster in found]
    assert names[0] == ["coordinator", "d", "t"]
    assert ["coordinator", "t"] in names
    assert names[-1] == ["coordinator", "d", "t"]
    for roster in found:
        absent = [one.name for one in roster.absent]
        assert "d" in [*absent, *(member.name for member in roster.members)]
    assert [roster.version for roster in found] == sorted({roster.version for roster in found})
    incarnation = {member.name: member.incarnation for member in found[-1].members}["d"]
    assert incarnation == running.host.of("d")[1].identity.incarnation


async def test_silent_actor_is_replaced(running: Running) -> None:
    """A process that hangs is as bad as none."""
    await running.supervisor.launch()
    await running.host.of("d")[0].hang()
    await until(
        lambda: (
            running.status("d").restarts == 1 and running.status("d").state is ActorState.SERVING
        )
    )

    assert await running.host.of("d")[0].run() == "killed"


async def test_why_a_silent_actor_was_ended_is_told(running: Running) -> None:
    """Whoever reads the status learns that the supervisor ended it, and by which setting."""
    await running.supervisor.launch()
    may_load = running.host.slow["d"] = asyncio.Event()
    await running.host.of("d")[0].hang()
    await until(lambda: running.status("d").state is not ActorState.SERVING)
    await until(lambda: bool(running.status("d").reason))

    assert "cluster.lease_s" in running.status("d").reason
    may_load.set()


async def test_pause_of_the_whole_machine_ends_nobody(running: Running) -> None:
    """Suspended and resumed, everyone is as alive as before."""
    await running.supervisor.launch()
    running.paused_s = 3600.0
    await asyncio.sleep(0.6)

    assert {status.state for status in running.supervisor.status()} == {ActorState.SERVING}
    assert len(running.host.starts) == 3


async def test_actor_that_keeps_dying_is_started_for_ever_and_the_rest_goes_on(
    running: Running,
) -> None:
    """Thirty early deaths later it serves again; the reason is told meanwhile."""
    await running.supervisor.launch()
    running.host.failures["d"] = crashes(30)
    await running.host.of("d")[0].die()
    await until(lambda: running.status("d").reason == "crashed while starting: out of memory")
    await until(lambda: running.status("d").state is ActorState.SERVING)

    assert running.status("d").restarts == 31
    assert running.status("t").state is ActorState.SERVING


async def test_a_drafter_that_crashes_at_launch_does_not_end_it(running: Running) -> None:
    """The service serves without it, and it comes when it can."""
    running.host.failures["d"] = crashes(10)
    await running.supervisor.launch()
    assert running.status("t").state is ActorState.SERVING
    await until(lambda: running.status("d").state is ActorState.SERVING)


async def test_coordinator_loads_beside_workers_and_serves_after_them(running: Running) -> None:
    """A client that reaches it finds targets there."""
    may_load = running.host.slow["t"] = asyncio.Event()
    launching = asyncio.create_task(running.supervisor.launch())
    await until(lambda: ("prepare", "coordinator") in running.host.order)
    await until(lambda: ("start", "d") in running.host.order)
    assert ("start", "coordinator") not in running.host.order

    may_load.set()
    await launching

    assert running.host.order.index(("start", "coordinator")) > running.host.order.index(
        ("start", "t")
    )


async def test_service_that_starts_can_be_stopped(running: Running) -> None:
    """Whoever waits for a worker is told so."""
    running.host.slow["t"] = asyncio.Event()
    launching = asyncio.create_task(running.supervisor.launch())
    await until(lambda: ("prepare", "coordinator") in running.host.order)

    await running.supervisor.stop(0.0)

    with pytest.raises((LaunchFailed, asyncio.CancelledError)):
        await launching
    assert ("start", "coordinator") not in running.host.order


async def test_refusal_at_launch_is_told_at_once(running: Running) -> None:
    """A model that is not there will not be there at the second try."""
    running.host.failures["t"] = refusals("model '/nowhere' not found")

    with pytest.raises(
        LaunchFailed, match="the target 't' cannot start: model '/nowhere' not found"
    ):
        await running.supervisor.launch()
    assert len(running.host.of("t")) == 1
    assert ("start", "coordinator") not in running.host.order


async def test_crash_at_launch_is_tried_again_but_not_for_ever(running: Running) -> None:
    """A process lost by accident must not fail a launch; one that always crashes must."""
    running.host.failures["t"] = crashes(2)
    await running.supervisor.launch()

    assert running.status("t").restarts == 2

    other = Running()
    other.host.failures["t"] = crashes(3)
    with pytest.raises(LaunchFailed, match="crashed while starting"):
        await other.supervisor.launch()
    await other.supervisor.stop(0.0)


async def test_refusal_after_a_first_life_is_tried_again(running: Running) -> None:
    """A file server that is away for a moment does not end a running service."""
    await running.supervisor.launch()
    running.host.failures["t"] = refusals("stale file handle", times=2)
    await running.host.of("t")[0].die()
    await until(
        lambda: (
            running.status("t").restarts == 3 and running.status("t").state is ActorState.SERVING
        )
    )

    assert running.status("t").reason == ""


async def test_an_actor_for_which_no_process_can_be_had_is_tried_again(running: Running) -> None:
    """Where processes are asked for may be out of reach for a moment; that ends no actor for good."""
    await running.supervisor.launch()
    spawn, refused = running.host.spawn, list[str]()

    async def out_of_reach(
        spec: ActorSpec, settings: ActorSettings, identity: Identity
    ) -> RunningActor:
        if len(refused) < 2:
            refused.append(spec.name)
            raise ActorCrashed("the control store is out of reach")
        return await spawn(spec, settings, identity)

    running.host.spawn = out_of_reach  # type: ignore[method-assign]
    await running.host.of("t")[0].die()
    await until(lambda: bool(running.host.of("t")[1:]), timeout_s=20.0)
    await until(lambda: running.status("t").state is ActorState.SERVING)

    assert refused == ["t", "t"]
    assert running.status("t").restarts == 3


async def test_missing_resources_fail_the_launch(running: Running) -> None:
    """Before any process is started."""
    running.host.has_room = False

    with pytest.raises(PlacementError, match="target_node"):
        await running.supervisor.launch()
    assert running.host.starts == []


async def test_stop_drains_the_coordinator_and_ends_everything(running: Running) -> None:
    """The grace is for requests; workers without requests need none. Nothing is started again."""
    await running.supervisor.launch()
    await running.supervisor.stop(3.0)
    await running.supervisor.stop(3.0)

    graces = {actor.identity.name: actor.grace_s for actor in running.host.starts}
    assert graces == {"coordinator": 3.0, "t": 0.0, "d": 0.0}
    assert {status.state for status in running.supervisor.status()} == {ActorState.STOPPED}
    assert len(running.host.starts) == 3


async def test_stop_while_an_actor_waits_for_its_restart(running: Running) -> None:
    """The end does not wait for the back-off, and the actor stays dead."""
    await running.supervisor.launch()
    running.host.failures["d"] = crashes(2)
    await running.host.of("d")[0].die()
    await until(lambda: running.status("d").state is ActorState.RESTARTING)
    await running.supervisor.stop(0.0)
    num_starts = len(running.host.of("d"))
    await asyncio.sleep(0.1)

    assert len(running.host.of("d")) == num_starts


async def test_coordinator_comes_back_on_its_port(running: Running) -> None:
    """Clients reconnect to the address they know."""
    await running.supervisor.launch()
    await running.host.of("coordinator")[0].die()
    await until(lambda: running.status("coordinator").restarts == 1)
    await until(lambda: running.status("coordinator").state is ActorState.SERVING)

    assert running.host.of("coordinator")[1].settings.listen == "127.0.0.1:9"


async def test_a_change_that_is_called_off_twice_leaves_nothing(running: Running) -> None:
    """As by the load that is gone and by someone who asks for something else: what had begun to start ends all the same."""
    await running.supervisor.launch()
    running.host.slow["e"] = asyncio.Event()
    config = {"targets": [{"model": "t"}], "drafters": [{"model": "d"}, {"model": "e"}]}
    wanted = actor_specs(parse_config(config, source="test"))
    changes = plan(running.supervisor.configured, wanted)
    change = asyncio.create_task(
        running.supervisor.change(changes, drain_s=0.0, tell=lambda text: None)
    )
    await until(lambda: ("prepare", "e") in running.host.order)
    (fresh,) = running.host.of("e")
    may_end, kill = asyncio.Event(), fresh.kill

    async def slowly() -> None:
        await may_end.wait()
        await kill()

    fresh.kill = slowly  # type: ignore[method-assign]
    for _ in range(2):
        change.cancel()
        await asyncio.sleep(0.05)
    may_end.set()
    await asyncio.wait([change])
    await until(lambda: ("end", "e") in running.host.order)
    await until(lambda: not running.supervisor.servicer.roster.absent)
