"""A supervisor's page, over HTTP: who is there and who is not, from the start of the launch to the end."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator

import grpc
import pytest
from tests.cluster.in_process import InProcessHost, until
from tests.cluster.metrics.page import Page, parsed
from tests.cluster.supervise.test_supervisor import QUICK, SPECS

from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.config.config_service import ClusterConfig
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

SETTINGS = SupervisorSettings(
    cluster=ClusterConfig(restarts=QUICK, start_timeout_s=60.0), metrics="127.0.0.1:0"
)


@pytest.fixture
def host() -> InProcessHost:
    """Where the actors run."""
    return InProcessHost()


@pytest.fixture
async def supervisor(host: InProcessHost) -> AsyncIterator[Supervisor]:
    """Its actors register, and tell no metrics."""
    made = Supervisor(SPECS, host, SETTINGS)
    yield made
    await made.stop(0.0)


async def page(supervisor: Supervisor) -> Page:
    """What Prometheus gets."""

    def get() -> str:
        url = f"http://{supervisor.metrics_address}/metrics"
        with urllib.request.urlopen(url, timeout=60.0) as answer:
            text: str = answer.read().decode()
        return text

    return parsed(await asyncio.to_thread(get))


async def test_restarts_and_strangers_are_told(supervisor: Supervisor, host: InProcessHost) -> None:
    """Also of actors that do not answer; the page ends with the service."""
    address = await supervisor.launch()
    await host.of("d")[0].die()
    await until(lambda: len(host.of("d")) == 2)
    await until(lambda: all(s.state is ActorState.SERVING for s in supervisor.status()))
    async with internal_channel(address, host.starts[0].identity.credentials) as channel:
        stub = cluster_pb2_grpc.ClusterServiceStub(channel)
        stranger = cluster_pb2.Member(
            name="x", role=cluster_pb2.ROLE_DRAFTER, address="a:1", incarnation=1
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Register(cluster_pb2.RegisterRequest(member=stranger), timeout=60.0)
    found = await page(supervisor)

    assert found.total("outrider:actor_restarts_total", actor="d") == 1
    assert found.total("outrider:actor_restarts_total", actor="t") == 0
    assert found.total("outrider:refused_registrations_total") == 1
    assert {s.labels["role"] for s in found.families["outrider_up"].samples} == {
        "target",
        "drafter",
        "coordinator",
    }
    await supervisor.stop(0.0)
    with pytest.raises(OSError, match=r"refused|closed|reset"):
        await page(supervisor)


async def test_the_page_is_there_while_actors_load(
    supervisor: Supervisor, host: InProcessHost
) -> None:
    """A launch that takes long shows who is not up yet."""
    host.has_room = False
    with pytest.raises(Exception, match="target_node"):
        await supervisor.launch()
    assert (await page(supervisor)).total("outrider_up", actor="t") == 0.0


async def test_no_address_no_page() -> None:
    """Nothing listens unless it is asked for."""
    made = Supervisor(
        SPECS, InProcessHost(), SupervisorSettings(cluster=ClusterConfig(restarts=QUICK))
    )
    await made.launch()
    assert made.metrics_address == ""
    await made.stop(0.0)


async def test_a_port_that_is_taken_ends_the_launch(supervisor: Supervisor) -> None:
    """At once, before any actor is started."""
    await supervisor.launch()
    taken = SupervisorSettings(metrics=supervisor.metrics_address)
    host = InProcessHost()
    second = Supervisor(SPECS, host, taken)
    with pytest.raises(OSError, match=r"service\.metrics"):
        await second.launch()
    assert host.starts == []
    await second.stop(0.0)
