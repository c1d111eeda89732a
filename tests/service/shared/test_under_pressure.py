"""More requests than slots, and texts that begin alike, through a service of real processes.

Every output is compared with that of a target of our own that nobody else uses, so with plain decoding from the first
token on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.actors.target.state.chaos import Harness, opening, run_plain
from tests.service.conftest import MAX_CONTEXT, VOCAB_SIZE
from tests.service.processes import ServiceProcess

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, load_table
from outrider.actors.speculation.noise.seeds import derive_seed
from outrider.actors.speculation.options import Sampling
from outrider.v1 import generation_pb2, generation_pb2_grpc, sampling_pb2

if TYPE_CHECKING:
    from outrider.v1.generation_pb2_grpc import GenerationServiceAsyncStub as Stub

NUM_SLOTS = 4
"""Of the service's target."""

MAX_WAITING = 64
"""Of the service's queue."""

BOUND_S = 300.0
"""Deadline of requests that are meant to finish: a second or two on an idle machine."""


@pytest.fixture
async def stub(service: ServiceProcess) -> AsyncIterator[Stub]:
    """A client of the service."""
    async with grpc.aio.insecure_channel(service.address) as channel:
        yield generation_pb2_grpc.GenerationServiceStub(channel)


@pytest.fixture(scope="module")
def table(service: ServiceProcess) -> Table:
    """The target's model."""
    return load_table(service.folder / "target.npz")


@dataclass
class Output:
    """What one request brought."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    """Of each sequence."""
    cached: dict[int, int] = field(default_factory=dict)
    """Prompt tokens of each sequence that were not computed again."""


@dataclass(frozen=True)
class Ask:
    """One request."""

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int = 40
    n: int = 1
    request_id: str = ""

    def message(self) -> generation_pb2.GenerateRequest:
        """As it is sent."""
        return generation_pb2.GenerateRequest(
            request_id=self.request_id,
            tokens=generation_pb2.TokenIds(ids=self.prompt),
            sampling=sampling_pb2.SamplingOptions(
                temperature=1.0,
                seed=self.seed,
                max_tokens=self.max_tokens,
                ignore_eos=True,
                n=self.n,
            ),
        )

    def sampling(self, index: int) -> Sampling:
        """Of one of its sequences."""
        return Sampling(
            seed=derive_seed(self.seed, index),
            max_tokens=self.max_tokens,
            temperature=1.0,
            ignore_eos=True,
        )

    def plain(self, table: Table) -> dict[int, list[int]]:
        """What plain decoding gives, computed here."""
        return plain_texts(table, [self])[0]


def plain_texts(table: Table, asks: Sequence[Ask]) -> list[dict[int, list[int]]]:
    """What plain decoding gives each of these, whose prompts begin differently: so a target takes one sequence of each at a time, and none finds
    anything of another."""
    given: list[dict[int, list[int]]] = [{} for _ in asks]
    for index in range(max(ask.n for ask in asks)):
        events = [
            opening(place, ask.sampling(index), prompt=ask.prompt)
            for place, ask in enumerate(asks)
            if index < ask.n
        ]
        settings = EngineSettings(model=table.name, num_slots=len(events))
        texts = run_plain(Harness(TabularEngine(table, settings)), events)
        for place, text in texts.items():
            given[place][index] = text
    return given


async def run(stub: Stub, ask: Ask, timeout_s: float = BOUND_S) -> Output:
    """The whole output of a request."""
    output = Output()
    async for response in stub.Generate(ask.message(), timeout=timeout_s):
        if response.HasField("chunk"):
            tokens = output.tokens.setdefault(response.index, [])
            tokens.extend(token.id for token in response.chunk.tokens)
        elif response.HasField("completion"):
            output.cached[response.index] = response.completion.usage.cached_tokens
    return output


async def code_of(stub: Stub, ask: Ask, timeout_s: float) -> grpc.StatusCode:
    """How a request ends."""
    try:
        await run(stub, ask, timeout_s)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def tokens_of(seed: int, length: int) -> tuple[int, ...]:
    """Some tokens."""
    rng = random.Random(seed)
    return tuple(rng.randrange(VOCAB_SIZE) for _ in range(length))


async def fill(stub: Stub) -> list[asyncio.Task[None]]:
    """Requests that hold every slot until they are cancelled: plain decoding of a whole context takes much longer."""
    begun = [asyncio.Event() for _ in range(NUM_SLOTS)]

    async def hold(index: int) -> None:
        message = Ask(tokens_of(900 + index, 4), index, max_tokens=MAX_CONTEXT - 10).message()
        message.speculation.enabled = False
        async for response in stub.Generate(message, timeout=BOUND_S):
            if response.HasField("chunk"):
                begun[index].set()

    holders = [asyncio.ensure_future(hold(index)) for index in range(NUM_SLOTS)]
    async with asyncio.timeout(BOUND_S):
        for event in begun:
            await event.wait()
    return holders


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancels requests as clients do."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_each_turn_of_a_chat_computes_only_what_is_new(stub: Stub, table: Table) -> None:
    """The prompt of a turn is what was said before and a little more; only that is run."""
    text = tokens_of(1, 300)
    cached = []
    for turn in range(4):
        ask = Ask(text, seed=turn)
        output = await run(stub, ask)
        assert output.tokens == ask.plain(table)
        cached.append(output.cached[0])
        text += tuple(output.tokens[0]) + tokens_of(10 + turn, 20)
    assert cached == [0, 339, 399, 459]


async def test_sequences_of_one_request_compute_the_prompt_once(stub: Stub, table: Table) -> None:
    """With more of them than slots: those that begin later find it too."""
    ask = Ask(tokens_of(2, 200), seed=5, n=7)
    output = await run(stub, ask)
    assert output.tokens == ask.plain(table)
    assert sorted(output.cached.values()) == [0, *[199] * 6]


async def test_requests_with_one_system_prompt_share_it(stub: Stub, table: Table) -> None:
    """Forty at a time on four slots: all but the first find it in some slot."""
    system = tokens_of(3, 250)
    asks = [Ask(system + tokens_of(100 + index, 15), seed=index) for index in range(40)]
    outputs = await asyncio.gather(*(run(stub, ask) for ask in asks))
    for ask, output in zip(asks, outputs, strict=True):
        assert output.tokens == ask.plain(table)
    cached = sorted(output.cached[0] for output in outputs)
    assert cached[0] < 16
    assert cached[1] >= 250


async def test_chats_beyond_the_slots_throw_each_other_out(stub: Stub, table: Table) -> None:
    """Whatever was kept, cut, copied or thrown away, every text stays its own."""
    texts = [tokens_of(200 + chat, 60) for chat in range(9)]
    for turn in range(3):
        asks = [Ask(text, seed=turn, max_tokens=25) for text in texts]
        outputs = await asyncio.gather(*(run(stub, ask) for ask in asks))
        for chat, (ask, output) in enumerate(zip(asks, outputs, strict=True)):
            assert output.tokens == ask.plain(table)
            texts[chat] += tuple(output.tokens[0]) + tokens_of(300 + 10 * turn + chat, 12)


async def test_a_hundred_at_once_are_served_or_told_to_come_again(stub: Stub, table: Table) -> None:
    """Beyond the queue requests are refused at once, with a time; who follows the advice is served."""
    waiting = [Ask(tokens_of(400 + index, 20), seed=index, max_tokens=15) for index in range(100)]
    texts = dict(zip(waiting, plain_texts(table, waiting), strict=True))
    served = 0
    for _ in range(20):
        results = await asyncio.gather(*(run(stub, ask) for ask in waiting), return_exceptions=True)
        refused = []
        for ask, result in zip(waiting, results, strict=True):
            if isinstance(result, Output):
                assert result.tokens == texts[ask]
                served += 1
                continue
            assert isinstance(result, grpc.aio.AioRpcError), result
            assert result.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            advice = dict(result.trailing_metadata() or ())
            assert int(advice["grpc-retry-pushback-ms"]) == 1000
            refused.append(ask)
        assert served + len(refused) == 100
        # A full queue and full slots at least.
        assert served >= min(100, MAX_WAITING)
        waiting = refused
        if not waiting:
            break
        await asyncio.sleep(1.0)
    assert served == 100


async def test_who_gives_up_in_the_queue_leaves_no_trace(stub: Stub, table: Table) -> None:
    """A deadline, a cancellation and an abort end a request that never had a slot, and the next in line goes on."""
    holders = await fill(stub)
    try:
        impatient = [Ask(tokens_of(500 + index, 9), seed=index) for index in range(30)]
        ends = [code_of(stub, ask, timeout_s=0.3) for ask in impatient]
        assert set(await asyncio.gather(*ends)) == {grpc.StatusCode.DEADLINE_EXCEEDED}
        fickle = [asyncio.ensure_future(run(stub, ask)) for ask in impatient]
        await asyncio.sleep(0.2)
        await cancel(fickle)
        aborted = Ask(tokens_of(600, 9), seed=1, n=3, request_id="aborted")
        whole = asyncio.ensure_future(run(stub, aborted))
        for _ in range(600):  # until the request has arrived
            answer = await stub.Abort(generation_pb2.AbortRequest(request_id="aborted"))
            if answer.was_running:
                break
            await asyncio.sleep(0.05)
        assert await whole == Output(tokens={}, cached=dict.fromkeys(range(3), 0))
        # The queue has room for as many as before: nobody of those is left in it.
        patient = [Ask(tokens_of(700 + index, 9), seed=index) for index in range(MAX_WAITING)]
        queued = [asyncio.ensure_future(run(stub, ask)) for ask in patient]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in queued)
    finally:
        await cancel(holders)
    for task, text in zip(queued, plain_texts(table, patient), strict=True):
        assert (await task).tokens == text


async def test_many_sequences_do_not_keep_a_single_one_waiting(stub: Stub, table: Table) -> None:
    """Requests of sixteen sequences take turns with one that comes later: it ends long before them."""
    crowds = [Ask(tokens_of(800 + index, 30), seed=1, n=16, max_tokens=100) for index in range(4)]
    ended: list[str] = []

    async def ask_and_note(ask: Ask, name: str) -> Output:
        output = await run(stub, ask)
        ended.append(name)
        return output

    many = [asyncio.ensure_future(ask_and_note(crowd, "many")) for crowd in crowds]
    await asyncio.sleep(0.1)
    one = Ask(tokens_of(850, 30), seed=2)
    assert (await ask_and_note(one, "one")).tokens == one.plain(table)
    for task, text in zip(many, plain_texts(table, crowds), strict=True):
        assert (await task).tokens == text
    assert ended[0] == "one"
