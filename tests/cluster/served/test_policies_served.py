"""Drafting policies through the whole service: client options, coordinator, target and drafters, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from tests.cluster.front import Front, Serve

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.v1 import generation_pb2, sampling_pb2

FULL, CONFIDENCE, DECISION = (
    sampling_pb2.DRAFT_LENGTH_FULL,
    sampling_pb2.DRAFT_LENGTH_CONFIDENCE,
    sampling_pb2.DRAFT_LENGTH_DECISION,
)


@pytest.fixture
async def front(tmp_path: Path, serve: Serve) -> AsyncIterator[Front]:
    """A service with a model that drafts, and a drafter without a model."""
    file = tmp_path / "table.npz"
    random_table(24, 1, seed=5, concentration=0.2).save(file)
    engine = EngineSettings(model=f"tabular:{file}", num_slots=3, max_context=512, num_threads=1)
    target = TargetServer(
        TargetSettings(name="target-0", incarnation=1, model_name="m", engine=engine)
    )
    drafters = [
        DraftServer(DraftSettings(name="draft-0", incarnation=1, engine=engine)),
        DraftServer(DraftSettings(name="lookup-0", incarnation=1, method="prompt_lookup")),
    ]
    address = await target.start()
    addresses = [await drafter.start() for drafter in drafters]
    named = tuple(zip(("draft-0", "lookup-0"), addresses, strict=True))
    front = await serve(codec=None, targets=(address,), drafters=named)
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            up = [actor for actor in status.actors if actor.ready and actor.role == "drafter"]
            if status.accepting and len(up) == 2:
                break
            await asyncio.sleep(0.02)
    yield front
    for drafter in drafters:
        await drafter.stop(0.0)
    await target.stop(0.0)


async def generate(
    front: Front, speculation: sampling_pb2.SpeculationOptions
) -> tuple[list[int], tuple[str, ...]]:
    """Tokens of a request, and the drafters that took part."""
    request = generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=[3, 4, 5]),
        sampling=sampling_pb2.SamplingOptions(seed=6, max_tokens=80, temperature=0.8),
        speculation=speculation,
    )
    tokens: list[int] = []
    drafters: tuple[str, ...] = ()
    async for message in front.stub.Generate(request, timeout=60.0):
        tokens.extend(token.id for token in message.chunk.tokens)
        if message.HasField("admission"):
            drafters = tuple(message.admission.drafters)
    return tokens, drafters


async def test_policies_are_listed(front: Front) -> None:
    """What each drafter offers, and what the service offers as a whole."""
    response = await front.stub.ListModels(generation_pb2.ListModelsRequest(), timeout=60.0)
    (model,) = response.models
    assert {drafter.name: list(drafter.draft_lengths) for drafter in model.drafters} == {
        "draft-0": [FULL, CONFIDENCE],
        "lookup-0": [FULL],
    }
    assert list(model.draft_lengths) == [FULL, CONFIDENCE]
    assert list(model.roots) == [sampling_pb2.ROOTS_DRAFT, sampling_pb2.ROOTS_TARGET]


async def test_texts_do_not_depend_on_policies(front: Front) -> None:
    """Plain, default, and everything at once: the same tokens; only drafters that offer the policy take part."""
    plain, _ = await generate(front, sampling_pb2.SpeculationOptions(enabled=False))
    default, drafters = await generate(front, sampling_pb2.SpeculationOptions())
    assert drafters == ("draft-0", "lookup-0")
    every, able = await generate(
        front,
        sampling_pb2.SpeculationOptions(
            draft_length=CONFIDENCE,
            aggressiveness=0.5,
            roots=sampling_pb2.ROOTS_TARGET,
        ),
    )
    assert able == ("draft-0",)
    assert len(plain) == 80
    assert plain == default == every


async def test_what_nobody_offers_is_refused(front: Front) -> None:
    """With the field and what is offered."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await generate(front, sampling_pb2.SpeculationOptions(draft_length=DECISION))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "speculation.draft_length is 'decision'" in (refused.value.details() or "")
    assert "offered: confidence, full" in (refused.value.details() or "")
