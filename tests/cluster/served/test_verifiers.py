"""Every verifier and every drafting method without a model through the whole service: client, coordinator, target and drafters, over gRPC, with tables for models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.cluster.front import Front, Serve

from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.exchange.verifier_wire import ask_for, offered_by
from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.v1 import generation_pb2, sampling_pb2

VOCAB = 24
MAX_TOKENS = 150

WITHOUT_MODEL = [name for name, method in DRAFTERS.items() if not method.needs_model]

FROZEN = [verifier for verifier, method in VERIFIERS.items() if method.needs_frozen_tree]


@pytest.fixture
async def front(tmp_path: Path, serve: Serve) -> AsyncIterator[Front]:
    """A service in which target and drafter wait for each other, so that trees take part in every round."""
    async with served(tmp_path, serve, lockstep=True) as made:
        yield made


@pytest.fixture
async def eager(tmp_path: Path, serve: Serve) -> AsyncIterator[Front]:
    """A service whose target verifies whatever is there and waits for nobody, since some drafters have nothing to say."""
    async with served(tmp_path, serve, lockstep=False) as made:
        yield made


@asynccontextmanager
async def served(folder: Path, serve: Serve, *, lockstep: bool) -> AsyncIterator[Front]:
    """A service of a target that verifies also where it does not pay, and every method."""
    file = folder / "table.npz"
    random_table(VOCAB, 1, seed=5, concentration=0.2, eos_token_ids=(1,)).save(file)
    engine = EngineSettings(model=f"tabular:{file}", num_slots=3, max_context=512, num_threads=1)
    target = TargetServer(
        TargetSettings(
            name="target-0",
            incarnation=1,
            model_name="m",
            # Who waits for nobody must be slow enough for drafters to be in time.
            engine=engine if lockstep else replace(engine, device="emulated:8ms+1us"),
            lockstep=lockstep,
            adaptive=False,
        )
    )
    drafters = [
        DraftServer(DraftSettings(name="draft-0", incarnation=1, engine=engine, lockstep=True)),
        *(
            DraftServer(DraftSettings(name=f"{method}-0", incarnation=1, method=method))
            for method in WITHOUT_MODEL
        ),
    ]
    address = await target.start()
    addresses = [await drafter.start() for drafter in drafters]
    names = ("draft-0", *(f"{method}-0" for method in WITHOUT_MODEL))
    named = tuple(zip(names, addresses, strict=True))
    front = await serve(codec=None, targets=(address,), drafters=named)
    async with asyncio.timeout(240.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            up = [actor for actor in status.actors if actor.ready and actor.role == "drafter"]
            if status.accepting and len(up) == len(names):
                break
            await asyncio.sleep(0.02)
    yield front
    for drafter in drafters:
        await drafter.stop(0.0)
    await target.stop(0.0)


def request(
    speculation: sampling_pb2.SpeculationOptions,
    *,
    temperature: float,
    max_tokens: int = MAX_TOKENS,
    seed: int = 3,
    n: int = 1,
) -> generation_pb2.GenerateRequest:
    """A request of token ids."""
    return generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=[2, 3, 4]),
        sampling=sampling_pb2.SamplingOptions(
            seed=seed,
            max_tokens=max_tokens,
            ignore_eos=True,
            temperature=temperature,
            n=n,
        ),
        speculation=speculation,
    )


async def generate(
    front: Front, asked: generation_pb2.GenerateRequest
) -> tuple[list[int], generation_pb2.SpeculationStats]:
    """Ids of the output, and what speculation did."""
    ids: list[int] = []
    stats = generation_pb2.SpeculationStats()
    async for message in front.stub.Generate(asked, timeout=240.0):
        ids.extend(token.id for token in message.chunk.tokens)
        if message.HasField("completion"):
            stats = message.completion.speculation
    return ids, stats


async def sequences(
    front: Front, asked: generation_pb2.GenerateRequest
) -> tuple[dict[int, list[int]], int]:
    """Ids of each output, and candidates that were verified."""
    ids: dict[int, list[int]] = {}
    num_verified = 0
    async for message in front.stub.Generate(asked, timeout=240.0):
        ids.setdefault(message.index, []).extend(token.id for token in message.chunk.tokens)
        num_verified += message.completion.speculation.verified
    return ids, num_verified


async def drafted(
    front: Front, asked: generation_pb2.GenerateRequest
) -> tuple[list[int], generation_pb2.SpeculationStats]:
    """As `generate`, once a drafter had a part in it: a table decodes so fast that a text may be over before."""
    async with asyncio.timeout(240.0):
        while True:
            ids, stats = await generate(front, asked)
            if stats.accepted > 0:
                return ids, stats


async def test_every_verifier_works_for_the_request_that_asks_for_it(front: Front) -> None:
    """Greedy texts are those of plain decoding; sampled ones come; the drafter's candidates are in both."""
    off = sampling_pb2.SpeculationOptions(enabled=False)
    plain, _ = await generate(front, request(off, temperature=0.0))
    for verifier in VERIFIERS:
        options = sampling_pb2.SpeculationOptions(drafters=["draft-0"])
        ask_for(verifier, options)
        greedy, _ = await drafted(front, request(options, temperature=0.0))
        assert greedy == plain, verifier
        sampled, stats = await drafted(front, request(options, temperature=0.9))
        assert len(sampled) == MAX_TOKENS, verifier
        assert stats.wire_bytes > 0, verifier


@pytest.mark.parametrize(("temperature", "max_tokens"), [(0.0, 2 * MAX_TOKENS), (0.9, MAX_TOKENS)])
async def test_every_method_gives_the_text_of_plain_decoding(
    eager: Front, temperature: float, max_tokens: int
) -> None:
    """Whatever it proposes, also if nothing of it is ever accepted. Four sequences in three slots: one begins when others have ended. Few candidates are rejected in a text without noise, so it is longer."""
    off = sampling_pb2.SpeculationOptions(enabled=False)
    plain, _ = await sequences(
        eager, request(off, temperature=temperature, max_tokens=max_tokens, n=4)
    )
    for method in WITHOUT_MODEL:
        drafting = sampling_pb2.SpeculationOptions(drafters=[f"{method}-0"])
        asked = request(drafting, temperature=temperature, max_tokens=max_tokens, n=4)
        num_verified = 0
        async with asyncio.timeout(240.0):
            while not num_verified:
                ids, num_verified = await sequences(eager, asked)
                assert ids == plain, method


@pytest.mark.parametrize("temperature", [0.0, 0.9])
async def test_every_selector_gives_the_text_of_plain_decoding(
    eager: Front, temperature: float
) -> None:
    """Whoever drafts, and however often that changes, of as many sequences as there are slots."""
    off = sampling_pb2.SpeculationOptions(enabled=False)
    plain, _ = await sequences(
        eager, request(off, temperature=temperature, max_tokens=3 * MAX_TOKENS, n=3)
    )
    for selector in SELECTORS:
        chosen = sampling_pb2.SpeculationOptions(selector=selector, drafters_at_work=1)
        asked = request(chosen, temperature=temperature, max_tokens=3 * MAX_TOKENS, n=3)
        ids, _ = await sequences(eager, asked)
        assert ids == plain, selector


async def test_a_bandit_leaves_the_text_to_the_drafter_that_foresees_it(eager: Front) -> None:
    """Of a model and methods that only repeat, at one after another: each is tried, and later texts are the model's alone, nearly."""
    (model,) = (await eager.stub.ListModels(generation_pb2.ListModelsRequest())).models
    # The model is the last one, so whoever never looks further never comes to it.
    names = sorted((one.name for one in model.drafters), key=lambda name: name == "draft-0")
    assert {one.name: one.at_work for one in model.selectors} == {"least_busy": 0, "ucb": 1}
    asked = request(
        sampling_pb2.SpeculationOptions(selector="ucb", drafters=names),
        temperature=0.9,
        max_tokens=450,
    )
    told: list[str] = []
    async with asyncio.timeout(240.0):
        while not told[-300:].count("draft-0") > 200:
            async for message in eager.stub.Generate(asked, timeout=240.0):
                told += [
                    names[token.drafter]
                    for token in message.chunk.tokens
                    if token.HasField("drafter")
                ]
            asked.sampling.seed += 1


async def test_the_tree_shape_of_the_request_is_the_one_that_is_verified(front: Front) -> None:
    """A shape that is asked for is drafted: its depth bounds what is accepted at a time."""
    options = sampling_pb2.SpeculationOptions(
        verifier=sampling_pb2.VERIFIER_TRAVERSAL, tree_shape="4,2,2", drafters=["draft-0"]
    )
    _, stats = await drafted(front, request(options, temperature=0.9))
    assert len(stats.reached_by_depth) == 3
    assert 16 * stats.rounds < stats.verified <= 28 * stats.rounds


async def test_models_say_which_verifiers_they_and_their_drafters_offer(front: Front) -> None:
    """The target offers all, a drafter with a model serves all, one without serves those that need no model."""
    answer = await front.stub.ListModels(generation_pb2.ListModelsRequest())
    (model,) = answer.models
    by_name = {drafter.name: set(offered_by(drafter)) for drafter in model.drafters}
    assert by_name == {
        "draft-0": set(VERIFIERS),
        **{f"{method}-0": {"coupled", "exact_match"} for method in WITHOUT_MODEL},
    }
    infos = {info.name: info for info in model.verifier_infos}
    assert set(infos) == set(VERIFIERS)
    assert infos["coupled"].lossless
    assert not infos["typical"].lossless
    assert [option.name for option in infos["typical"].options] == ["epsilon", "delta"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 2.0}, "epsilon of typical must be in"),
        ({"gamma": 0.5}, "typical has no option 'gamma'; it has epsilon, delta"),
    ],
)
async def test_numbers_that_a_verifier_does_not_take_are_refused(
    front: Front, options: dict[str, float], message: str
) -> None:
    """Before any work, naming the field."""
    asked = sampling_pb2.SpeculationOptions(verifier_name="typical", verifier_options=options)
    with pytest.raises(grpc.aio.AioRpcError, match=r"speculation\.verifier_options") as refused:
        await generate(front, request(asked, temperature=0.9))
    assert message in str(refused.value.details())


async def test_a_drafter_that_cannot_serve_the_verifier_is_refused(front: Front) -> None:
    """Named, it is refused with the field; unnamed, it is left out."""
    options = sampling_pb2.SpeculationOptions(
        verifier=sampling_pb2.VERIFIER_BLOCK, drafters=["prompt_lookup-0"]
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await generate(front, request(options, temperature=0.9))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    said = str(refused.value.details())
    assert "'prompt_lookup-0' cannot serve the verifier 'block'" in said
    assert "without a law that they are drawn from" in said
    unnamed = sampling_pb2.SpeculationOptions(verifier=sampling_pb2.VERIFIER_BLOCK)
    ids, _ = await drafted(front, request(unnamed, temperature=0.9))
    assert len(ids) == MAX_TOKENS
