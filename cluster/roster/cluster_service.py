"""The servicer of `ClusterService`: the registry, over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

from outrider.cluster.roster.roster import Registry, Roster, StaleIncarnation, Stranger
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
        self.registry = registry
        """What it answers from."""
        registry.on_change = self._wake
        self._clock_s = clock_s
        self._changed = asyncio.Event()
        self.apply: Apply | None = None
        """Carries changes out; None: this service cannot be changed."""

    @property
    def roster(self) -> Roster:
        """Who is there."""
        return self.registry.roster

    async def Register(
        self, request: cluster_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> cluster_pb2.RegisterResponse:
        """Puts an actor on the roster."""
        try:
            member = member_from_proto(request.member)
            self.registry.register(member, now_s=self._clock_s())
        except StaleIncarnation as error:
            log.warning("registration refused", reason=str(error))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except Stranger as error:
            log.warning("registration refused", reason=str(error))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return cluster_pb2.RegisterResponse(lease_s=self.registry.lease_s)

    async def Renew(
        self, request: cluster_pb2.RenewRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> cluster_pb2.RenewResponse:
        """Prolongs a lease."""
        registered = self.registry.renew(
            request.name, incarnation=request.incarnation, now_s=self._clock_s()
        )
        return cluster_pb2.RenewResponse(registered=registered)

    async def WatchRoster(
        self, request: cluster_pb2.WatchRosterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cluster_pb2.Roster]:
        """Streams the roster at once and at each change; changes that come together may be one message."""
        sent = -1
        while True:
            changed, roster = self._changed, self.registry.roster
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
