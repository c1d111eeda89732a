"""The servicer of `ClusterService`: the registry, over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

from outrider.cluster.roster.roster import (
    Absent,
    Member,
    Registry,
    ReplicaScale,
    Roster,
    StaleIncarnation,
    Stranger,
)
from outrider.cluster.roster.roster_wire import member_from_proto, roster_to_proto
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

NAME = cluster_pb2.DESCRIPTOR.services_by_name["ClusterService"].full_name
"""Full name of the service, for health and reflection."""


log = structlog.get_logger(__name__)


Apply = Callable[
    [cluster_pb2.ApplyRequest, grpc.aio.ServicerContext[Any, Any]],
    AsyncIterator[cluster_pb2.ApplyEvent],
]


class ClusterServicer(cluster_pb2_grpc.ClusterServiceServicer):
    """Answers actors, and wakes whoever watches the roster."""

    def __init__(self, registry: Registry, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock_s = clock_s
        self._changed = asyncio.Event()
        self.apply: Apply | None = None
        """Carries changes out; None: this service cannot be changed."""

    @property
    def roster(self) -> Roster:
        """Who is there."""
        return self._registry.roster

    def fence(self, name: str, *, incarnation: int) -> None:
        """Refuses earlier starts of `name` from now on."""
        self._registry.fence(name, incarnation=incarnation)
        self._wake()

    def remove(self, name: str, *, incarnation: int) -> None:
        """Takes one start of an actor off the roster."""
        self._registry.remove(name, incarnation=incarnation)
        self._wake()

    def note_absent(self, absent: Absent) -> None:
        """Tells everyone of an actor that should be there and is not."""
        self._registry.note_absent(absent)
        self._wake()

    def forget_absent(self, name: str) -> None:
        """The actor is there, or is not wanted any more."""
        self._registry.forget_absent(name)
        self._wake()

    def note_scales(self, scales: tuple[ReplicaScale, ...]) -> None:
        """Tells everyone how many actors there should be."""
        self._registry.note_scales(scales)
        self._wake()

    def drain(self, name: str) -> None:
        """Tells everyone to give an actor no new sessions."""
        self._registry.drain(name)
        self._wake()

    def expire(self, *, paused_s: float) -> tuple[Member, ...]:
        """Takes off everyone whose lease has ended, and says who.

        Args:
            paused_s: For how long, since the last call, this process did not run. Renewals that came meanwhile are still to be
                read, so that time counts for nobody.
        """
        self._registry.prolong(paused_s)
        ended = self._registry.expire(now_s=self._clock_s())
        self._wake()
        return ended

    async def Register(
        self, request: cluster_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> cluster_pb2.RegisterResponse:
        """Puts an actor on the roster."""
        try:
            member = member_from_proto(request.member)
            self._registry.register(member, now_s=self._clock_s())
        except StaleIncarnation as error:
            self._wake()
            log.warning("registration refused", reason=str(error))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except Stranger as error:
            self._wake()
            log.warning("registration refused", reason=str(error))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._wake()
        return cluster_pb2.RegisterResponse(lease_s=self._registry.lease_s)

    async def Renew(
        self, request: cluster_pb2.RenewRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> cluster_pb2.RenewResponse:
        """Prolongs a lease."""
        registered = self._registry.renew(
            request.name, incarnation=request.incarnation, now_s=self._clock_s()
        )
        return cluster_pb2.RenewResponse(registered=registered)

    async def WatchRoster(
        self, request: cluster_pb2.WatchRosterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cluster_pb2.Roster]:
        """Streams the roster at once and at each change; changes that come together may be one message."""
        sent = -1
        while True:
            changed, roster = self._changed, self._registry.roster
            if roster.version != sent:
                sent = roster.version
                yield roster_to_proto(roster)
            await changed.wait()

    async def Apply(
        self, request: cluster_pb2.ApplyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cluster_pb2.ApplyEvent]:
        """Changes what runs."""
        if self.apply is None:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, "this service cannot be changed while it runs"
            )
            return
        async for event in self.apply(request, context):
            yield event

    def _wake(self) -> None:
        # A new event for the next change: who waits on the old one is woken exactly once.
        self._changed.set()
        self._changed = asyncio.Event()
