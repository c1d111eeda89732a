"""The life of an actor in its process: whatever ends it, its process is told why."""

from __future__ import annotations

import asyncio

import pytest

from outrider.actors.process.actor_runner import ActorRunner, Identity
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import bind, internal_server
from outrider.cluster.roster.cluster_service import ClusterServicer
from outrider.cluster.roster.roster import Registry
from outrider.v1 import cluster_pb2_grpc

BOUND_S = 60.0


class Server:
    """Serves nothing, and fails when it is told to."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()
        self.is_stopped = False
        self.internal_address = "127.0.0.1:9"
        self.description = "float32"

    async def start(self) -> str:
        """Has an address."""
        return "127.0.0.1:9"

    async def stop(self, grace_s: float = 0.0) -> None:
        """Notes it."""
        self.is_stopped = True

    async def failed(self) -> str:
        """Waits for `fails`."""
        await self.fails.wait()
        return "the worker failed: MemoryError()"


@pytest.mark.parametrize("end", ["failure", "fence", "stop"])
async def test_the_end_of_an_actor_has_a_reason(end: str) -> None:
    """A server that failed must not live on as a shell; nor an earlier start beside a later one."""
    credentials = Credentials.fresh()
    servicer = ClusterServicer(Registry(lease_s=0.2))
    supervisor = internal_server(credentials)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(servicer, supervisor)
    port = bind(supervisor, "127.0.0.1:0")
    await supervisor.start()
    servicer.registry.fence("t", incarnation=5)
    server = Server()
    identity = Identity(
        name="t",
        role="target",
        model="m",
        incarnation=5,
        supervisor=f"127.0.0.1:{port}",
        credentials=credentials,
    )
    runner = ActorRunner(identity, server, node_id="n")
    await runner.start()
    running = asyncio.create_task(runner.run())
    if end == "failure":
        server.fails.set()
    elif end == "fence":
        servicer.registry.fence("t", incarnation=6)
    else:
        await runner.stop(0.0)
    reason = await asyncio.wait_for(running, BOUND_S)
    assert (
        reason
        == {
            "failure": "the worker failed: MemoryError()",
            "fence": "a later start has taken its place",
            "stop": "",
        }[end]
    )
    await runner.stop(0.0)
    await supervisor.stop(0.0)
