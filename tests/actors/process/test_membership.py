"""How an actor stays on the roster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from outrider.actors.process.membership import Membership
from outrider.actors.rpc.grpc_server import bind, internal_server
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

MEMBER = cluster_pb2.Member(name="d", address="127.0.0.1:1", incarnation=5)


class ScriptedSupervisor(cluster_pb2_grpc.ClusterServiceServicer):
    """Answers renewals by a script, and accepts registrations until it is told not to."""

    def __init__(self) -> None:
        self.registrations = 0
        self.renewals = 0
        self.script: list[bool | grpc.StatusCode] = []
        self.is_fenced = False

    async def Register(self, request, context):  # type: ignore[no-untyped-def]
        """Accepts, or fences."""
        self.registrations += 1
        if self.is_fenced:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "replaced")
        return cluster_pb2.RegisterResponse(lease_s=0.04)

    async def Renew(self, request, context):  # type: ignore[no-untyped-def]
        """Follows the script; renews when it is at its end."""
        self.renewals += 1
        answer = self.script.pop(0) if self.script else True
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, "scripted")
        else:
            return cluster_pb2.RenewResponse(registered=answer)

    async def WatchRoster(self, request, context):  # type: ignore[no-untyped-def]
        """Is not used here."""
        yield cluster_pb2.Roster()

    async def Apply(self, request, context):  # type: ignore[no-untyped-def]
        """Is not used here."""
        yield cluster_pb2.ApplyEvent()


@pytest.fixture
async def supervisor() -> AsyncIterator[tuple[ScriptedSupervisor, str]]:
    """A supervisor and its address."""
    scripted, server = ScriptedSupervisor(), internal_server()
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(scripted, server)
    port = bind(server, "127.0.0.1:0")
    await server.start()
    yield scripted, f"127.0.0.1:{port}"
    await server.stop(0.0)


async def until_renewed(scripted: ScriptedSupervisor, times: int) -> None:
    """Waits for so many renewals."""
    async with asyncio.timeout(60.0):
        while scripted.renewals < times:  # noqa: ASYNC110 - a counter is what is waited for
            await asyncio.sleep(0.005)


async def test_member_renews_until_it_leaves(supervisor: tuple[ScriptedSupervisor, str]) -> None:
    """Leaving ends the renewals."""
    scripted, address = supervisor
    membership = Membership(address, MEMBER)
    await membership.join()
    await until_renewed(scripted, 3)
    await membership.leave()
    renewals = scripted.renewals
    await asyncio.sleep(0.1)

    assert scripted.registrations == 1
    assert scripted.renewals == renewals


async def test_forgotten_member_registers_again(supervisor: tuple[ScriptedSupervisor, str]) -> None:
    """After a pause of the machine, or a restart of the supervisor."""
    scripted, address = supervisor
    scripted.script = [False]
    membership = Membership(address, MEMBER)
    await membership.join()
    await until_renewed(scripted, 2)
    await membership.leave()

    assert scripted.registrations == 2


async def test_failed_renewals_are_tried_again(supervisor: tuple[ScriptedSupervisor, str]) -> None:
    """An unreachable supervisor ends no actor."""
    scripted, address = supervisor
    scripted.script = [grpc.StatusCode.UNAVAILABLE]
    membership = Membership(address, MEMBER)
    await membership.join()
    await until_renewed(scripted, 2)
    await membership.leave()

    assert scripted.registrations == 1


async def test_replaced_member_learns_that_it_is_fenced(
    supervisor: tuple[ScriptedSupervisor, str],
) -> None:
    """It must end, for another start of it serves."""
    scripted, address = supervisor
    membership = Membership(address, MEMBER)
    await membership.join()
    scripted.is_fenced, scripted.script = True, [False]

    await asyncio.wait_for(membership.fenced(), 60)
    await membership.leave()


async def test_joining_where_nobody_answers_fails_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An actor that cannot register says so instead of waiting."""
    monkeypatch.setattr("outrider.actors.process.membership.CALL_TIMEOUT_S", 0.2)
    membership = Membership("127.0.0.1:1", MEMBER)

    with pytest.raises(grpc.aio.AioRpcError):
        await asyncio.wait_for(membership.join(), 10)
    await membership.leave()
