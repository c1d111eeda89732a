"""A coordinator and a client's view of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc

from outrider.cluster.gateway.coordinator import Coordinator
from outrider.v1 import generation_pb2_grpc


class Front:
    """A coordinator and a client's view of it."""

    def __init__(self, coordinator: Coordinator, address: str) -> None:
        self.coordinator = coordinator
        self.address = address
        self.channel = grpc.aio.insecure_channel(
            address, options=[("grpc.max_send_message_length", 64 << 20)]
        )
        self.stub = generation_pb2_grpc.GenerationServiceStub(self.channel)

    def counted(self, metric: str) -> dict[str, float]:
        """What the coordinator has counted under this name, by the value of its label."""
        (family,) = [one for one in self.coordinator.collect() if one.name.endswith(metric)]
        return {value: one.value for one in family.samples for value in one.labels.values()}

    async def stop(self) -> None:
        """Ends both."""
        await self.channel.close()
        await self.coordinator.stop(0.0)


Serve = Callable[..., Awaitable[Front]]
"""Makes a coordinator of some settings."""
