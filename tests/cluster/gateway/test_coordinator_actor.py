"""The Ray shell of a coordinator, outside Ray: how it follows the roster."""

from __future__ import annotations

import asyncio
from typing import cast

from structlog.testing import capture_logs

from outrider.actors.process.actor_runner import Identity
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import bind, internal_server
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.gateway.coordinator import Coordinator
from outrider.cluster.gateway.coordinator_actor import CoordinatorActor
from outrider.cluster.roster.cluster_service import ClusterServicer
from outrider.cluster.roster.roster import Registry, Roster
from outrider.v1 import cluster_pb2_grpc

CREDENTIALS = Credentials.fresh()


class Choosy:
    """A coordinator that cannot take the first roster in."""

    def __init__(self) -> None:
        self.num_told = 0

    async def update_roster(self, roster: Roster) -> None:
        """Takes later ones."""
        self.num_told += 1
        if self.num_told == 1:
            raise KeyError("a defect")


async def test_a_roster_that_is_not_taken_in_is_not_the_last_one() -> None:
    """The log says what happened, and the coordinator hears of who comes and goes from then on."""
    server = internal_server(CREDENTIALS)
    servicer = ClusterServicer(Registry(lease_s=10.0))
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(servicer, server)
    port = bind(server, "127.0.0.1:0")
    await server.start()
    actor = CoordinatorActor(
        CoordinatorSettings(name="c", incarnation=1),
        Identity(
            name="c",
            role="coordinator",
            model="m",
            incarnation=1,
            supervisor=f"127.0.0.1:{port}",
            credentials=CREDENTIALS,
        ),
    )
    choosy, is_informed = Choosy(), asyncio.Event()
    with capture_logs() as lines:
        following = asyncio.create_task(actor._follow(cast(Coordinator, choosy), is_informed))
        async with asyncio.timeout(60.0):
            await is_informed.wait()
        following.cancel()
        await asyncio.wait([following])
    await server.stop(0.0)
    assert choosy.num_told == 2
    assert [line["event"] for line in lines] == ["a roster was not taken in"]
