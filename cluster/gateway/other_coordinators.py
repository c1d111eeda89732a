"""The other coordinators of the service, as one of them sees them: asked with a bound, and missed if they do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.roster.roster import Member, Role, Roster
from outrider.v1 import generation_pb2, generation_pb2_grpc

Answer = TypeVar("Answer")

ANSWER_S = 1.0
"""Bound on an answer of a peer."""


async def statuses(
    roster: Roster, own_name: str, credentials: Credentials
) -> list[tuple[Member, generation_pb2.GetStatusResponse | None]]:
    """What each other coordinator says of itself; None if it does not answer."""
    request = generation_pb2.GetStatusRequest(is_local=True)
    return await _asked(
        roster, own_name, credentials, lambda stub: stub.GetStatus(request, timeout=ANSWER_S)
    )


async def abort(roster: Roster, own_name: str, credentials: Credentials, request_id: str) -> bool:
    """Ends a request that another coordinator runs. True if one did."""
    request = generation_pb2.AbortRequest(request_id=request_id, is_local=True)
    answers = await _asked(
        roster, own_name, credentials, lambda stub: stub.Abort(request, timeout=ANSWER_S)
    )
    return any(answer is not None and answer.was_running for _, answer in answers)


async def _asked(
    roster: Roster,
    own_name: str,
    credentials: Credentials,
    call: Callable[[generation_pb2_grpc.GenerationServiceAsyncStub], Awaitable[Answer]],
) -> list[tuple[Member, Answer | None]]:
    """What each other coordinator answers; None if it does not."""

    async def ask(peer: Member) -> Answer | None:
        try:
            async with internal_channel(peer.internal_address, credentials) as channel:
                return await call(generation_pb2_grpc.GenerationServiceStub(channel))
        except grpc.aio.AioRpcError:
            return None

    peers = [
        member
        for member in roster.members
        if member.role is Role.COORDINATOR and member.name != own_name and member.internal_address
    ]
    return list(zip(peers, await asyncio.gather(*map(ask, peers)), strict=True))
