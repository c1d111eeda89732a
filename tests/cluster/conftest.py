"""Coordinators in front of scripted targets and drafters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.asking import Start, ready
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import ByteCodec, Script, ScriptedTarget

from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.gateway.coordinator import Coordinator


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Makes coordinators; they end with the test. A keyword `codec` of None serves without a tokenizer."""
    fronts: list[Front] = []

    async def make(**settings: Any) -> Front:
        codec = settings.pop("codec", ByteCodec())
        named = {"name": "coordinator", "incarnation": 1, **settings}
        coordinator = Coordinator(CoordinatorSettings(**named), codec)
        front = Front(coordinator, await coordinator.start())
        fronts.append(front)
        return front

    yield make
    for front in fronts:
        await front.stop()


@pytest.fixture
async def target() -> AsyncIterator[ScriptedTarget]:
    """A scripted target, serving."""
    made = ScriptedTarget(Script())
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def start(serve: Serve, target: ScriptedTarget) -> Start:
    """Makes a coordinator in front of the target, and waits until it is ready."""

    async def make(**settings: Any) -> Front:
        front = await serve(targets=(target.address,), **settings)
        await ready(front)
        return front

    return make
