"""One draft model with exits beside two targets of different size, through coordinator, targets and drafter: both texts are those of plain decoding."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from tests.actors.draft.methods.small_nested import save
from tests.cluster.front import Front, Serve
from tests.cluster.served.coming import let_drafters_come

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.exchange.verifier_wire import ask_for
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.config.coordinator_settings import FurtherModel
from outrider.v1 import generation_pb2, sampling_pb2

PROMPT = [5, 3, 1, 4, 1, 5, 9, 2, 6]
LAYERS = {"large": 4, "small": 1}
FROZEN = [name for name, method in VERIFIERS.items() if method.needs_frozen_tree]


def saved(folder: Path, layers: int, exits: tuple[int, ...] = ()) -> EngineSettings:
    """A small model, one thread."""
    return EngineSettings(model=save(folder, layers, exits), num_slots=4, num_threads=1)


@pytest.fixture
async def service(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Front, DraftServer]]:
    """All of it. Targets wait for the drafter, so that trees take part in every round."""
    async with AsyncExitStack() as stack:
        addresses = {}
        for name, layers in LAYERS.items():
            target = TargetServer(
                TargetSettings(
                    name=f"target-{name}",
                    incarnation=1,
                    model_name=name,
                    engine=saved(tmp_path / name, layers),
                    lockstep=True,
                    adaptive=False,
                )
            )
            addresses[name] = await target.start()
            let_drafters_come(target, monkeypatch)
            stack.push_async_callback(target.stop, 0.0)
        drafter = DraftServer(
            DraftSettings(
                name="nested",
                incarnation=1,
                method="sorted",
                engine=saved(tmp_path / "nested", 3, exits=(1, 2, 3)),
                options={"confidence": 0.2},
                lockstep=True,
            )
        )
        draft_address = await drafter.start()
        stack.push_async_callback(drafter.stop, 0.0)
        front = await serve(
            codec=None,
            model_name="large",
            targets=(addresses["large"],),
            further=(FurtherModel(name="small", targets=(addresses["small"],)),),
            drafters=(("nested", draft_address),),
        )
        async with asyncio.timeout(60.0):
            while True:
                status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
                if sum(one.ready for one in status.actors) == 4:
                    break
                await asyncio.sleep(0.02)
        yield front, drafter


async def generate(
    front: Front,
    model: str,
    temperature: float,
    *,
    seed: int = 7,
    verifier: str = "",
    max_tokens: int = 64,
) -> tuple[list[int], str]:
    """A text and the model that says that it wrote it; without a verifier plainly."""
    options = sampling_pb2.SpeculationOptions(enabled=bool(verifier))
    if verifier:
        ask_for(verifier, options)
    request = generation_pb2.GenerateRequest(
        model=model,
        tokens=generation_pb2.TokenIds(ids=PROMPT),
        sampling=sampling_pb2.SamplingOptions(
            seed=seed, max_tokens=max_tokens, ignore_eos=True, temperature=temperature
        ),
        speculation=options,
    )
    tokens: list[int] = []
    admitted = ""
    async for message in front.stub.Generate(request, timeout=60.0):
        admitted = message.admission.model or admitted
        tokens += [token.id for token in message.chunk.tokens]
    return tokens, admitted


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_texts_of_two_targets_at_once_are_those_of_plain_decoding(
    service: tuple[Front, DraftServer], temperature: float
) -> None:
    """The drafter serves both at the same time, and is of use to both."""
    front, drafter = service
    names = [*LAYERS, *LAYERS]
    plain = [
        await generate(front, model, temperature, seed=seed) for seed, model in enumerate(names)
    ]
    assert plain[0][0] != plain[1][0], "they are different models"
    drafted = await asyncio.gather(
        *(
            generate(front, model, temperature, seed=seed, verifier="coupled")
            for seed, model in enumerate(names)
        )
    )
    assert drafted == plain
    assert [model for _, model in drafted] == names
    status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    accepted = {one.model: one.accepted for one in status.actors if one.role == "target"}
    assert accepted["large"] > 0, accepted
    assert accepted["small"] > 0, accepted
    assert drafter.stats.failures == 0
    (note,) = [one.note for one in status.actors if one.role == "drafter"]
    told = re.fullmatch(
        r"tokens leave after so many of its layers: (\d+)% after 1, (\d+)% after 2, (\d+)% after 3; "
        r"at most [123] where a pass takes [\d.]+ ms, [123] where a pass takes [\d.]+ ms",
        note,
    )
    assert told, note
    assert 98 <= sum(map(int, told.groups())) <= 102


async def test_frozen_trees_are_tested_with_the_laws_that_they_were_drawn_from(
    service: tuple[Front, DraftServer],
) -> None:
    """Every verifier that divides by the drafter's law takes its trees; greedily, where the text is one, it is that of plain decoding."""
    front, drafter = service
    plain, _ = await generate(front, "small", 0.0, max_tokens=24)
    for verifier in FROZEN:
        if VERIFIERS[verifier].is_lossless:
            assert (await generate(front, "small", 0.0, verifier=verifier, max_tokens=24))[
                0
            ] == plain, verifier
        text, _ = await generate(front, "large", 0.8, verifier=verifier, max_tokens=24)
        assert len(text) == 24, verifier
    assert drafter.stats.failures == 0


async def test_models_are_chosen_by_name_and_listed(
    service: tuple[Front, DraftServer],
) -> None:
    """Without a name the first one answers; a wrong name is told the right ones; each model has the drafter."""
    front, _ = service
    assert (await generate(front, "", 0.0))[1] == "large"
    with pytest.raises(grpc.aio.AioRpcError, match="known models: 'large', 'small'"):
        await generate(front, "medium", 0.0)
    listed = await front.stub.ListModels(generation_pb2.ListModelsRequest())
    assert [model.name for model in listed.models] == ["large", "small"]
    assert [[one.name for one in model.drafters if one.ready] for model in listed.models] == [
        ["nested"],
        ["nested"],
    ]
