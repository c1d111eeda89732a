"""What the supervisor's service answers to wrong calls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from structlog.testing import capture_logs

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import bind, internal_channel, internal_server
from outrider.cluster.roster.cluster_service import ClusterServicer
from outrider.cluster.roster.roster import Registry
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

CREDENTIALS = Credentials.fresh()


@pytest.fixture
async def servicer() -> ClusterServicer:
    """An empty roster, to which one drafter may come."""
    servicer = ClusterServicer(Registry(lease_s=10.0))
    servicer.registry.fence("d", incarnation=5)
    return servicer


@pytest.fixture
async def stub(
    servicer: ClusterServicer,
) -> AsyncIterator[cluster_pb2_grpc.ClusterServiceAsyncStub]:
    """A client of it."""
    server = internal_server(CREDENTIALS)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(servicer, server)
    port = bind(server, "127.0.0.1:0")
    await server.start()
    async with internal_channel(f"127.0.0.1:{port}", CREDENTIALS) as channel:
        yield cluster_pb2_grpc.ClusterServiceStub(channel)
    await server.stop(0.0)


def register(**changes: object) -> cluster_pb2.RegisterRequest:
    """A complete registration, changed."""
    fields = {
        "name": "d",
        "role": cluster_pb2.ROLE_DRAFTER,
        "address": "127.0.0.1:1",
        "incarnation": 5,
    }
    return cluster_pb2.RegisterRequest(member=cluster_pb2.Member(**(fields | changes)))  # type: ignore[arg-type]


async def test_registration_tells_the_lease(stub: cluster_pb2_grpc.ClusterServiceAsyncStub) -> None:
    """The actor learns how often to renew."""
    response = await stub.Register(register(), timeout=60.0)

    assert response.lease_s == 10.0


async def test_incomplete_registration_is_an_invalid_argument(
    stub: cluster_pb2_grpc.ClusterServiceAsyncStub,
) -> None:
    """And names the field."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Register(register(address=""), timeout=60.0)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "member.address is absent"


async def test_fenced_registration_is_a_failed_precondition(
    servicer: ClusterServicer, stub: cluster_pb2_grpc.ClusterServiceAsyncStub
) -> None:
    """By which the actor knows that it must end. An operator finds it by its address, which log and roster tell."""
    servicer.registry.fence("d", incarnation=6)
    with capture_logs() as lines, pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Register(register(), timeout=60.0)

    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    address = register().member.address
    assert address in servicer.roster.last_refusal
    (line,) = [line for line in lines if line["event"] == "registration refused"]
    assert line["reason"] == servicer.roster.last_refusal


@pytest.mark.parametrize("changes", [{"name": "x"}, {"incarnation": 2**64 - 1}])
async def test_who_was_not_started_here_has_no_permission(
    stub: cluster_pb2_grpc.ClusterServiceAsyncStub, changes: dict[str, object]
) -> None:
    """And whoever watches the roster is told."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Register(register(**changes), timeout=60.0)

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await stub.Register(register(), timeout=60.0)
    roster = await anext(aiter(stub.WatchRoster(cluster_pb2.WatchRosterRequest(), timeout=60.0)))
    assert (roster.refused, [member.incarnation for member in roster.members]) == (1, [5])


async def test_renewal_of_a_stranger_says_so(
    stub: cluster_pb2_grpc.ClusterServiceAsyncStub,
) -> None:
    """So that an actor whose lease ended registers again."""
    response = await stub.Renew(cluster_pb2.RenewRequest(name="x", incarnation=1), timeout=60.0)

    assert not response.registered
