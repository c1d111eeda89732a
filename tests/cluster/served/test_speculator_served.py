"""The shipped speculator and the shipped target, through coordinator, streams and bytes: the text is that of plain decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cluster.front import Front, Serve
from tests.cluster.served.coming import let_drafters_come
from tests.cluster.served.test_feedback_served import generate, peers_ready, until

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.v1 import generation_pb2, sampling_pb2

TOKENS = 48
PROMPTS = (
    [0, 71, 302, 415, 98, 1207],
    [0, *range(300, 320)],
    [0, 19, 1800, 44, 44, 44, 8, 90],
)
"""Token ids; any text will do, as the target decides."""


def request(prompt: list[int], seed: int, temperature: float, *, enabled: bool) -> Any:
    """A request for a fixed number of tokens."""
    return generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=prompt),
        sampling=sampling_pb2.SamplingOptions(
            seed=seed, max_tokens=TOKENS, temperature=temperature, ignore_eos=True
        ),
        speculation=sampling_pb2.SpeculationOptions(enabled=enabled),
    )


async def drafted_of(front: Front, temperature: float) -> int:
    """Tokens of the drafter, over all prompts; each text is compared with plain decoding's."""
    count = 0
    for seed, prompt in enumerate(PROMPTS):
        plain, _ = await generate(front, request(prompt, seed, temperature, enabled=False))
        text, drafted = await generate(front, request(prompt, seed, temperature, enabled=True))
        assert text == plain
        count += drafted
    return count


async def test_the_shipped_speculator_drafts_and_changes_no_token(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the text is the drafter's, which proposes nothing without the target's states; how much hangs on the machine."""
    torch.set_num_threads(1)
    target = TargetServer(
        TargetSettings(
            name="target-0",
            incarnation=1,
            model_name="demo",
            engine=EngineSettings(model="demo:target", num_slots=2, max_context=256, num_threads=1),
            listen="127.0.0.1:0",
            # It waits for the drafter, however busy the machine is.
            lockstep=True,
            adaptive=False,
        )
    )
    drafter = DraftServer(
        DraftSettings(
            name="heads",
            incarnation=1,
            method="mlp_speculator",
            engine=EngineSettings(model="demo:mlp_speculator", num_slots=2, num_threads=1),
            lockstep=True,
        )
    )
    try:
        address = await target.start()
        let_drafters_come(target, monkeypatch)
        drafters = (("heads", await drafter.start()),)
        front = await serve(codec=None, targets=(address,), drafters=drafters)
        await until(front, peers_ready)
        drafted = [await drafted_of(front, temperature) for temperature in (0.0, 0.8)]
    finally:
        await drafter.stop(0.0)
        await target.stop(0.0)
    assert all(drafted)
