"""Shipped drafters of hidden states beside the shipped target, through coordinator, target and drafter: the text is that of plain decoding."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cluster.front import Front, Serve
from tests.cluster.served.test_feedback_served import generate, peers_ready, until

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.v1 import generation_pb2, sampling_pb2

MAX_TOKENS = 96
PATIENCE_S = 1.0
"""How long the target waits for a tree at most: on a busy machine, too, it has one to verify."""

PROMPT = [0, 300, 301, 302, 303, 304, 305, 306]


def settings_of(model: str) -> EngineSettings:
    """Room for two short texts, one thread."""
    return EngineSettings(model=model, num_slots=2, max_context=256, num_threads=1)


@asynccontextmanager
async def running(
    serve: Serve, method: str, model: str
) -> AsyncIterator[tuple[Front, DraftServer]]:
    """All of it."""
    target = TargetServer(
        TargetSettings(
            name="target-0",
            incarnation=1,
            model_name="demo",
            engine=settings_of("demo:target"),
            listen="127.0.0.1:0",
            # So small a target decodes so fast that it must be made to wait for the drafter.
            lockstep=True,
            max_patience_s=PATIENCE_S,
        )
    )
    drafter = DraftServer(
        DraftSettings(
            name="states", incarnation=1, method=method, engine=settings_of(f"demo:{model}")
        )
    )
    address = await target.start()
    try:
        front = await serve(
            codec=None, targets=(address,), drafters=(("states", await drafter.start()),)
        )
        await until(front, peers_ready)
        yield front, drafter
    finally:
        await drafter.stop(0.0)
        await target.stop(0.0)


def asked(seed: int, temperature: float, *, enabled: bool) -> generation_pb2.GenerateRequest:
    """A request for a fixed number of tokens."""
    return generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=PROMPT),
        sampling=sampling_pb2.SamplingOptions(
            seed=seed, max_tokens=MAX_TOKENS, ignore_eos=True, temperature=temperature
        ),
        speculation=sampling_pb2.SpeculationOptions(enabled=enabled),
    )


PLAIN: dict[tuple[int, float], list[int]] = {}
"""What the target alone writes, by seed and temperature. It is the same target for every drafter, so the first service is asked."""


async def plain_text(front: Front, seed: int, temperature: float) -> list[int]:
    """The text of plain decoding."""
    key = (seed, temperature)
    if key not in PLAIN:
        PLAIN[key], _ = await generate(front, asked(seed, temperature, enabled=False))
    return PLAIN[key]


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("dspark", "dspark"),
        ("ctc", "ctc"),
        ("diffusion", "diffusion"),
        ("eagle3", "eagle3"),
        ("hidden_reuse", "eagle3"),
        ("mlp_speculator", "mlp_speculator"),
    ],
)
async def test_its_candidates_are_taken_and_change_no_token(
    serve: Serve, method: str, model: str
) -> None:
    """It was trained for this target: it proposes tokens that stay, and nothing else than the target's own is written."""
    async with running(serve, method, model) as (front, drafter):
        for temperature in (0.0, 0.8):
            drafted = 0
            for seed in range(16):
                if drafted:
                    break  # where all else is slow, states come late, and a text may go by without a token of the drafter's
                plain = await plain_text(front, seed, temperature)
                text, count = await generate(front, asked(seed, temperature, enabled=True))
                assert text == plain
                drafted += count
            assert drafted > 0
        stats = drafter.stats
        assert (stats.feature_rows > MAX_TOKENS) == (method != "diffusion")
        assert stats.failures == 0
