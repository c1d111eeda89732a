"""Coordinators in front of scripted targets and drafters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.asking import Start, ready
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import ByteCodec, Script, ScriptedTarget

from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.gateway import other_coordinators, reports
from outrider.cluster.gateway.coordinator import Coordinator
from outrider.cluster.metrics import federation
from outrider.cluster.tracing import running_trace, trace_source

PATIENCE_S = 30.0
"""For answers of actors that are there."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a busy machine keeps. In a service whoever is late is told as not ready, or its records are left out."""
    for module, bound in (
        (reports, "STATUS_S"),
        (other_coordinators, "ANSWER_S"),
        (federation, "COLLECT_S"),
        (running_trace, "START_S"),
        (running_trace, "END_S"),
        (trace_source, "LAST_S"),
    ):
        monkeypatch.setattr(module, bound, PATIENCE_S)


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
