"""Coordinators in front of scripted targets and drafters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.cluster.scripted import ByteCodec

from outrider.cluster.coordinator import Coordinator
from outrider.cluster.settings import CoordinatorSettings
from outrider.v1 import generation_pb2_grpc

Serve = Callable[..., Awaitable["Front"]]


class Front:
    """A coordinator and a client's view of it."""

    def __init__(self, coordinator: Coordinator, address: str) -> None:
        self.coordinator = coordinator
        self.address = address
        self.channel = grpc.aio.insecure_channel(
            address, options=[("grpc.max_send_message_length", 64 << 20)]
        )
        self.stub = generation_pb2_grpc.GenerationServiceStub(self.channel)

    async def stop(self) -> None:
        """Ends both."""
        await self.channel.close()
        await self.coordinator.stop(0.0)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Makes coordinators; they end with the test. A keyword `codec` of None serves without a tokenizer."""
    fronts: list[Front] = []

    async def make(**settings: Any) -> Front:
        codec = settings.pop("codec", ByteCodec())
        coordinator = Coordinator(
            CoordinatorSettings(name="coordinator", incarnation=1, **settings), codec
        )
        front = Front(coordinator, await coordinator.start())
        fronts.append(front)
        return front

    yield make
    for front in fronts:
        await front.stop()
