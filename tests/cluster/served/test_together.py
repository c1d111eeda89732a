"""Coordinator, target and drafter together, all real, with a table for a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.front import Front, Serve
from tests.cluster.served.coming import let_drafters_come

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_core import TargetCore, Wait
from outrider.v1 import generation_pb2, sampling_pb2, target_pb2, target_pb2_grpc

VOCAB = 24
NUM_SLOTS = 3


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with peaked distributions, so that its own table drafts well and text repeats."""
    file = tmp_path_factory.mktemp("table") / "table.npz"
    random_table(VOCAB, 1, seed=5, concentration=0.1, eos_token_ids=(1,)).save(Path(file))
    return f"tabular:{file}"


class Together:
    """A cluster in one process."""

    def __init__(self, front: Front, target: TargetServer, drafter: DraftServer) -> None:
        self.front = front
        self.target = target
        self.drafter = drafter

    async def generate(
        self, request: generation_pb2.GenerateRequest
    ) -> tuple[list[int], list[generation_pb2.Token], generation_pb2.Completion]:
        """Output of a request with one sequence: ids, tokens, completion."""
        tokens: list[generation_pb2.Token] = []
        completion = generation_pb2.Completion()
        async for message in self.front.stub.Generate(request, timeout=60.0):
            tokens.extend(message.chunk.tokens)
            if message.HasField("completion"):
                completion = message.completion
        return [token.id for token in tokens], tokens, completion

    async def free_slots(self) -> int:
        """Slots that the target has free, by its own account."""
        async with internal_channel(self.target_address) as channel:
            stub = target_pb2_grpc.TargetServiceStub(channel)
            info = await stub.GetInfo(target_pb2.GetTargetInfoRequest(), timeout=60.0)
        return int(info.num_free_slots)

    target_address = ""


def engine(table: str) -> EngineSettings:
    """The table with a few slots."""
    return EngineSettings(model=table, num_slots=NUM_SLOTS, max_context=512, num_threads=1)


@pytest.fixture
def lockstep() -> bool:
    """Whether the target waits for the drafter; tests that need it to say so."""
    return False


@pytest.fixture
async def together(
    table: str, serve: Serve, lockstep: bool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Together]:
    """A target, a drafter with the same table, and a coordinator. In lockstep the drafter has a part in every text."""
    target = TargetServer(
        TargetSettings(
            name="target-0",
            incarnation=1,
            model_name="table",
            engine=engine(table),
            lockstep=lockstep,
        )
    )
    drafter = DraftServer(DraftSettings(name="draft-0", incarnation=1, engine=engine(table)))
    target_address, drafter_address = await target.start(), await drafter.start()
    front = await serve(
        codec=None, targets=(target_address,), drafters=(("draft-0", drafter_address),)
    )
    made = Together(front, target, drafter)
    made.target_address = target_address
    if lockstep:
        let_drafters_come(target, monkeypatch)
    await ready(front, drafters=1)
    yield made
    await drafter.stop(0.0)
    await made.target.stop(0.0)


async def ready(front: Front, *, drafters: int) -> None:
    """Waits until the coordinator has its target and so many drafters."""
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            up = [actor for actor in status.actors if actor.ready and actor.role == "drafter"]
            if status.accepting and len(up) == drafters:
                return
            await asyncio.sleep(0.02)


def request(
    seed: int, *, enabled: bool = True, max_tokens: int = 64, **sampling: Any
) -> generation_pb2.GenerateRequest:
    """A request of token ids."""
    return generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=[2, 3, 4]),
        sampling=sampling_pb2.SamplingOptions(
            seed=seed, max_tokens=max_tokens, ignore_eos=True, **sampling
        ),
        speculation=sampling_pb2.SpeculationOptions(enabled=enabled),
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_speculation_changes_no_token(together: Together, temperature: float) -> None:
    """With a drafter the output is that of plain decoding with the same seed, and provenance adds up."""
    for seed in range(4):
        plain, _, _ = await together.generate(request(seed, enabled=False, temperature=temperature))
        drafted, tokens, completion = await together.generate(
            request(seed, temperature=temperature)
        )
        assert drafted == plain
        assert len(drafted) == 64
        by_drafter = [t for t in tokens if t.origin == generation_pb2.ORIGIN_DRAFTER]
        assert completion.speculation.accepted >= len(by_drafter)
        assert all(token.drafter == 0 for token in by_drafter)


@pytest.mark.parametrize("lockstep", [True])
async def test_the_drafter_has_a_part_in_the_text(together: Together) -> None:
    """Tokens that the drafter proposed say so. The table decodes so fast that it must be made to wait for the drafter."""
    _, tokens, _ = await together.generate(request(1, max_tokens=450))
    assert any(token.origin == generation_pb2.ORIGIN_DRAFTER for token in tokens)


async def test_killing_the_drafter_changes_no_token(together: Together) -> None:
    """A drafter that dies in the middle of a request costs speed only."""
    plain, _, _ = await together.generate(request(9, enabled=False, max_tokens=400))
    ids: list[int] = []
    stopping: asyncio.Task[None] | None = None
    async for message in together.front.stub.Generate(request(9, max_tokens=400), timeout=60.0):
        ids.extend(token.id for token in message.chunk.tokens)
        if stopping is None and len(ids) > 20:
            stopping = asyncio.ensure_future(together.drafter.stop())
    assert ids == plain
    assert stopping is not None
    await stopping


async def test_several_sequences_have_their_own_seeds_and_share_the_prompt(
    together: Together,
) -> None:
    """n sequences, more than there are slots, differ from each other and agree with another run."""
    many = request(3, max_tokens=24, n=5)
    runs = []
    for _ in range(2):
        outputs: dict[int, list[int]] = {index: [] for index in range(5)}
        completed = []
        async for message in together.front.stub.Generate(many, timeout=60.0):
            outputs[message.index].extend(token.id for token in message.chunk.tokens)
            if message.HasField("completion"):
                completed.append(message.index)
        assert sorted(completed) == [0, 1, 2, 3, 4]
        runs.append(outputs)
    assert runs[0] == runs[1]
    assert len({tuple(output) for output in runs[0].values()}) == 5
    alone, _, _ = await together.generate(request(3, max_tokens=24))
    assert runs[0][0] == alone


async def test_a_resumed_request_goes_on_token_for_token(together: Together) -> None:
    """From any number of received tokens the rest is the same."""
    whole, _, _ = await together.generate(request(5))
    (served,) = (await together.front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    for received in (1, 17, 63):
        resumed = request(5)
        resumed.model_fingerprint = served.model_fingerprint
        resumed.resume.ids.extend(whole[:received])
        rest, _, completion = await together.generate(resumed)
        assert whole[:received] + rest == whole
        assert completion.usage.completion_tokens == 64


async def test_cancelling_frees_the_slot(together: Together) -> None:
    """A cancelled call leaves no session at the target."""
    for _ in range(NUM_SLOTS + 1):
        call = together.front.stub.Generate(request(1, max_tokens=500), timeout=60.0)
        await call.read()
        await call.read()
        call.cancel()
    async with asyncio.timeout(60.0):
        while True:
            status = await together.front.stub.GetStatus(generation_pb2.GetStatusRequest())
            is_idle = status.running == status.waiting == 0
            if is_idle and await together.free_slots() == NUM_SLOTS:
                break
            await asyncio.sleep(0.02)


async def test_the_target_comes_back_and_requests_go_on(together: Together, table: str) -> None:
    """A target that is killed and started again at its address: a pause, and the same text."""
    plain, _, _ = await together.generate(request(11, max_tokens=450))
    ids: list[int] = []
    restarting: asyncio.Task[TargetServer] | None = None

    async def restart() -> TargetServer:
        await together.target.stop(0.0)
        again = TargetServer(
            TargetSettings(
                name="target-0",
                incarnation=2,
                model_name="table",
                engine=engine(table),
                listen=together.target_address,
            )
        )
        await again.start()
        return again

    async for message in together.front.stub.Generate(request(11, max_tokens=450), timeout=60.0):
        ids.extend(token.id for token in message.chunk.tokens)
        if restarting is None and len(ids) > 20:
            restarting = asyncio.ensure_future(restart())
    assert restarting is not None
    together.target = await restarting
    assert ids == plain
    async with asyncio.timeout(60.0):
        while not together.front.counted("link_breaks")["target-0"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert together.front.counted("link_breaks")["target-0"] == 1


async def test_a_worker_that_fails_is_replaced_and_requests_go_on(
    together: Together, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault outside a pass: the streams end, the server says so, and the next start goes on with the same text."""
    plain, _, _ = await together.generate(request(13, max_tokens=450))
    ids: list[int] = []
    restarting: asyncio.Task[TargetServer] | None = None

    async def restart() -> TargetServer:
        def fail(self: TargetCore, now: float) -> Pass | Wait:
            raise ZeroDivisionError("in the plan")

        with monkeypatch.context() as broken:
            broken.setattr(TargetCore, "begin", fail)
            async with asyncio.timeout(60.0):
                assert "in the plan" in await together.target.failed()
        await together.target.stop(0.0)
        again = TargetServer(
            TargetSettings(
                name="target-0",
                incarnation=2,
                model_name="table",
                engine=engine(table),
                listen=together.target_address,
            )
        )
        await again.start()
        return again

    async for message in together.front.stub.Generate(request(13, max_tokens=450), timeout=60.0):
        ids.extend(token.id for token in message.chunk.tokens)
        if restarting is None and len(ids) > 20:
            restarting = asyncio.ensure_future(restart())
    assert restarting is not None
    together.target = await restarting
    assert ids == plain
