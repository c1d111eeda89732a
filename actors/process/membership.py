"""How an actor stays on the roster: it registers with the supervisor and renews its lease until it leaves.

The renewals run on the actor's own event loop on purpose: an actor whose loop hangs falls silent, its lease ends, and the
supervisor replaces it. An unreachable supervisor stops nothing: the data plane does not need it.
"""

from __future__ import annotations

import asyncio

import grpc
import structlog

from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

CALL_TIMEOUT_S = 5.0
"""Deadline of one call to the supervisor, which answers from memory."""

RETRY_S = 0.5
"""Pause after a failed renewal."""

RENEWALS_PER_LEASE = 4
"""Renewals in the time of one lease, so that three in a row may be lost."""

log = structlog.get_logger(__name__)


class Membership:
    """One start of an actor on the roster."""

    def __init__(
        self, supervisor: str, member: cluster_pb2.Member, credentials: Credentials = OPEN
    ) -> None:
        self._supervisor = supervisor
        self._credentials = credentials
        self._channel = internal_channel(supervisor, credentials)
        self._stub = cluster_pb2_grpc.ClusterServiceStub(self._channel)
        self._member = member
        self._renewals: asyncio.Task[None] | None = None
        self._fenced = asyncio.Event()

    async def join(self) -> None:
        """Registers, and renews from then on.

        Raises:
            grpc.aio.AioRpcError: The supervisor does not answer, or has started a later incarnation.
        """
        lease_s = await self._register()
        self._renewals = asyncio.create_task(
            self._renew_forever(lease_s), name=f"{self._member.name}-renewals"
        )

    async def fenced(self) -> None:
        """Waits until a later incarnation has taken this one's place."""
        await self._fenced.wait()

    async def leave(self) -> None:
        """Stops renewing. The supervisor takes the actor off the roster when it ends."""
        if self._renewals is not None:
            self._renewals.cancel()
            await asyncio.gather(self._renewals, return_exceptions=True)
            self._renewals = None
        await self._channel.close()

    async def _reconnect(self) -> None:
        """Takes a new channel: with TLS, one with the certificate of now."""
        before = self._channel
        self._channel = internal_channel(self._supervisor, self._credentials)
        self._stub = cluster_pb2_grpc.ClusterServiceStub(self._channel)
        await before.close()

    async def _register(self) -> float:
        request = cluster_pb2.RegisterRequest(member=self._member)
        response = await self._stub.Register(request, timeout=CALL_TIMEOUT_S, wait_for_ready=True)
        return response.lease_s

    async def _renew_forever(self, lease_s: float) -> None:
        request = cluster_pb2.RenewRequest(
            name=self._member.name, incarnation=self._member.incarnation
        )
        while True:
            await asyncio.sleep(lease_s / RENEWALS_PER_LEASE)
            try:
                response = await self._stub.Renew(request, timeout=CALL_TIMEOUT_S)
                if not response.registered:
                    await self._register()
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    log.warning("fenced", actor=self._member.name, reason=error.details())
                    self._fenced.set()
                    return
                log.debug("renewal failed", actor=self._member.name, reason=error.details())
                await asyncio.sleep(RETRY_S)
                await self._reconnect()
