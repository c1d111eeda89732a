"""How actors that are replaced or removed end: their requests first, within a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

import grpc
import structlog

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.roster.roster import Role
from outrider.cluster.supervise.actor_supervisor import ActorSupervisor
from outrider.v1 import target_pb2, target_pb2_grpc

LOOK_S = 0.5
"""How often a target is asked whether it has sessions left."""

ANSWER_S = 5.0
"""Bound on its answer."""

log = structlog.get_logger(__name__)


async def see_off(
    actors: Sequence[ActorSupervisor],
    serving: Collection[str],
    credentials: Credentials,
    *,
    drain_s: float,
    tell: Callable[[str], None],
) -> None:
    """Lets actors end. Drafters go at once, because texts go on without them; coordinators when their streams have ended;
    targets when they have no session left: those of a deployment that goes on at once, others after the coordinators that
    alone still send them work.

    Args:
        actors: The actors.
        serving: Deployments that go on.
        credentials: What calls to targets carry.
        drain_s: Seconds for each.
        tell: Is told of each end.
    """
    deadline = time.monotonic() + drain_s

    async def end(actor: ActorSupervisor) -> None:
        actor.retire()
        if actor.spec.role is Role.TARGET:
            await _until_idle(actor, credentials, deadline)
        left_s = max(0.0, deadline - time.monotonic())
        await actor.end(left_s if actor.spec.role is Role.COORDINATOR else 0.0)
        tell(f"{actor.spec.role} {actor.spec.name}: ended")

    last = [
        one for one in actors if one.spec.role is Role.TARGET and one.spec.deployment not in serving
    ]
    await asyncio.gather(*(end(actor) for actor in actors if actor not in last))
    await asyncio.gather(*(end(actor) for actor in last))


async def _until_idle(actor: ActorSupervisor, credentials: Credentials, deadline: float) -> None:
    """Waits until a target has no session, is gone, or the time is over."""
    await asyncio.sleep(LOOK_S)  # Coordinators hear of the roster first.
    while time.monotonic() < deadline and actor.status.state is ActorState.DRAINING:
        try:
            async with internal_channel(actor.status.address, credentials) as channel:
                info = await target_pb2_grpc.TargetServiceStub(channel).GetInfo(
                    target_pb2.GetTargetInfoRequest(), timeout=ANSWER_S
                )
        except grpc.aio.AioRpcError as error:
            log.warning("a target that drains does not answer", reason=error.details())
        else:
            if info.num_free_slots == info.num_slots:
                return
        await asyncio.sleep(LOOK_S)
