"""The other coordinators of the service, as one of them sees them: asked with a bound, and missed if they do not answer."""

from __future__ import annotations

import asyncio

import grpc

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.roster.roster import Member, Role, Roster
from outrider.v1 import generation_pb2, generation_pb2_grpc

ANSWER_S = 1.0
"""Bound on an answer of a peer."""


async def statuses(
    roster: Roster, own_name: str, credentials: Credentials
) -> list[tuple[Member, generation_pb2.GetStatusResponse | None]]:
    """What each other coordinator says of itself; None if it does not answer."""
    request = generation_pb2.GetStatusRequest(is_local=True)
    peers = _others(roster, own_name)
    answers = await asyncio.gather(*(_status(peer, request, credentials) for peer in peers))
    return list(zip(peers, answers, strict=True))


async def abort(roster: Roster, own_name: str, credentials: Credentials, request_id: str) -> bool:
    """Ends a request that another coordinator runs. True if one did."""
    request = generation_pb2.AbortRequest(request_id=request_id, is_local=True)
    peers = _others(roster, own_name)
    return any(await asyncio.gather(*(_abort(peer, request, credentials) for peer in peers)))


def _others(roster: Roster, own_name: str) -> list[Member]:
    return [
        member
        for member in roster.members
        if member.role is Role.COORDINATOR and member.name != own_name and member.internal_address
    ]


async def _status(
    peer: Member, request: generation_pb2.GetStatusRequest, credentials: Credentials
) -> generation_pb2.GetStatusResponse | None:
    try:
        async with internal_channel(peer.internal_address, credentials) as channel:
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            return await stub.GetStatus(request, timeout=ANSWER_S)
    except grpc.aio.AioRpcError:
        return None


async def _abort(
    peer: Member, request: generation_pb2.AbortRequest, credentials: Credentials
) -> bool:
    try:
        async with internal_channel(peer.internal_address, credentials) as channel:
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            return (await stub.Abort(request, timeout=ANSWER_S)).was_running
    except grpc.aio.AioRpcError:
        return False
