"""A method that drafts from the target's hidden states, through coordinator, target and drafter: all real but the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.actors.draft.linear_head import spec_of
from tests.cluster.front import Front, Serve
from tests.cluster.served.coming import let_drafters_come

from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.draft.service import draft_server, feedback_receiver
from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.target.service import feedback_streams
from outrider.actors.target.service.feedback_queue import FeedbackQueue
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.v1 import generation_pb2, sampling_pb2

VOCAB = 24

BOUND_S = 60.0


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with peaked distributions: the likeliest token after the likeliest token is often the text."""
    file = tmp_path_factory.mktemp("table") / "table.npz"
    random_table(VOCAB, 1, seed=5, concentration=0.1).save(file)
    return file


class Served:
    """A target, a drafter that asks for its states, and a coordinator."""

    def __init__(self, table: Path, spec: DrafterSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(draft_server, "DRAFTERS", {**DRAFTERS, spec.name: spec})
        self._table = table
        self._monkeypatch = monkeypatch
        settings = DraftSettings(name="head", incarnation=1, method=spec.name, num_slots=2)
        self.drafter = DraftServer(settings)
        self.target = self._new_target(1, "127.0.0.1:0")
        self.address = ""

    def _new_target(self, incarnation: int, listen: str) -> TargetServer:
        return TargetServer(
            TargetSettings(
                name="target-0",
                incarnation=incarnation,
                model_name="table",
                engine=EngineSettings(
                    model=f"tabular:{self._table}", num_slots=2, max_context=512, num_threads=1
                ),
                listen=listen,
                # The table decodes so fast that it must be made to wait for the drafter.
                lockstep=True,
            )
        )

    async def restart_target(self) -> None:
        """Kills it, and starts it again at its address."""
        await self.target.stop(0.0)
        self.target = self._new_target(2, self.address)
        await self.target.start()

    @asynccontextmanager
    async def running(
        self,
        serve: Serve,
        is_there: Callable[[generation_pb2.GetStatusResponse], bool] | None = None,
    ) -> AsyncIterator[Front]:
        """All of it. `is_there` tells when it runs; None: when target and drafter are ready."""
        self.address = await self.target.start()
        drafters = (("head", await self.drafter.start()),)
        front = await serve(codec=None, targets=(self.address,), drafters=drafters)
        try:
            await until(front, is_there or peers_ready)
            if is_there is None:
                let_drafters_come(self.target, self._monkeypatch)
            yield front
        finally:
            await self.drafter.stop(0.0)
            await self.target.stop(0.0)


def peers_ready(status: generation_pb2.GetStatusResponse) -> bool:
    """Whether a target and a drafter are connected; the coordinator, which is always, counts for neither."""
    return {"target", "drafter"} <= {one.role for one in status.actors if one.ready}


async def until(
    front: Front, check: Callable[[generation_pb2.GetStatusResponse], bool]
) -> generation_pb2.GetStatusResponse:
    """The first status that is as wanted."""
    async with asyncio.timeout(BOUND_S):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if check(status):
                return status
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


async def generate(
    front: Front,
    asked: generation_pb2.GenerateRequest,
    at: Callable[[int], None] = lambda count: None,
) -> tuple[list[int], int]:
    """The tokens, and how many of them the drafter had proposed."""
    tokens: list[generation_pb2.Token] = []
    async for message in front.stub.Generate(asked, timeout=BOUND_S):
        tokens.extend(message.chunk.tokens)
        at(len(tokens))
    drafted = [token for token in tokens if token.origin == generation_pb2.ORIGIN_DRAFTER]
    return [token.id for token in tokens], len(drafted)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
async def test_states_come_and_change_no_token(
    table: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """The drafter knows nothing else, so tokens of its own show that they came; status shows the bytes."""
    served = Served(table, spec_of(table, width=VOCAB), monkeypatch)
    async with served.running(serve) as front:
        count = 0
        for seed in range(3):
            asked: dict[str, Any] = {"max_tokens": 200, "temperature": temperature}
            plain, _ = await generate(front, request(seed, enabled=False, **asked))
            text, drafted = await generate(front, request(seed, **asked))
            assert text == plain
            count += drafted
        assert count > 50
        status = await until(front, lambda status: any(one.feedback_bytes for one in status.actors))
        (head,) = (one for one in status.actors if one.name == "head")
        positions = served.drafter.stats.feature_rows
        assert positions > 100
        assert head.feedback_bytes >= positions * 2 * VOCAB
        assert head.feedback_dropped == 0


async def test_a_target_that_comes_back_is_asked_again(
    table: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text goes on, and so do the states, from the next prompt on."""
    served = Served(table, spec_of(table), monkeypatch)
    async with served.running(serve) as front:
        # States of a prompt that was read before the drafter asked again are gone, and each token then waits half a second.
        asked: dict[str, Any] = {"max_tokens": 44, "temperature": 0.6}
        plain, _ = await generate(front, request(11, enabled=False, **asked))
        restarting: list[asyncio.Task[None]] = []

        def restart(count: int) -> None:
            if count > 20 and not restarting:
                restarting.append(asyncio.ensure_future(served.restart_target()))

        text, _ = await generate(front, request(11, **asked), restart)
        await restarting[0]
        assert text == plain
        await until(front, peers_ready)
        before = served.drafter.stats.feature_rows
        async with asyncio.timeout(BOUND_S):
            while served.drafter.stats.feature_rows <= before:
                await generate(front, request(12, max_tokens=100))


async def test_a_stream_that_breaks_is_opened_again(
    table: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the states alone: verdicts go on meanwhile, and so does the text."""
    queues: list[FeedbackQueue] = []

    class Known(FeedbackQueue):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            queues.append(self)

    monkeypatch.setattr(feedback_receiver, "AGAIN_AFTER_S", 0.05)
    monkeypatch.setattr(feedback_streams, "FeedbackQueue", Known)
    served = Served(table, spec_of(table), monkeypatch)
    async with served.running(serve) as front:
        plain, _ = await generate(front, request(5, enabled=False, max_tokens=100))
        assert (await generate(front, request(5, max_tokens=100)))[0] == plain
        (queue,) = queues
        queue.end()
        before = served.drafter.stats.feature_rows
        async with asyncio.timeout(BOUND_S):
            while served.drafter.stats.feature_rows <= before + 20:
                assert (await generate(front, request(5, max_tokens=100)))[0] == plain
        assert served.drafter.stats.verdicts > 0
        assert len(queues) == 2


async def test_what_the_target_has_not_is_refused(
    table: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drafter is not ready, with the reason, and is not attached; the text is decoded plainly."""
    served = Served(table, spec_of(table, layers=(99,)), monkeypatch)

    def is_told(status: generation_pb2.GetStatusResponse) -> bool:
        told = {one.role: one for one in status.actors}
        return told["target"].ready and "'norm', not 99" in told["drafter"].problem

    async with served.running(serve, is_told) as front:
        plain, _ = await generate(front, request(1, enabled=False))
        text, drafted = await generate(front, request(1))
        assert (text, drafted) == (plain, 0)
        assert served.drafter.stats.verdicts == 0
