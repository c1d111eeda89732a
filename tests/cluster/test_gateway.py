"""The public service, over real gRPC, in front of a scripted target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no stubs
from tests.cluster.conftest import Front, Serve
from tests.cluster.scripted import EOS, Script, ScriptedTarget, scripted_token

from outrider.v1 import generation_pb2, sampling_pb2

PROMPT = "abc"

Start = Callable[..., Awaitable[Front]]


class Output:
    """What a stream said."""

    def __init__(self) -> None:
        self.admission: generation_pb2.Admission | None = None
        self.text: dict[int, str] = {}
        self.ids: dict[int, list[int]] = {}
        self.completions: dict[int, generation_pb2.Completion] = {}

    def take(self, message: generation_pb2.GenerateResponse) -> None:
        """Notes a message; order and number of events are checked."""
        match message.WhichOneof("event"):
            case "admission":
                assert self.admission is None, "admitted twice"
                self.admission = message.admission
            case "chunk":
                assert self.admission is not None, "a chunk before the admission"
                assert message.index not in self.completions, "a chunk after the completion"
                self.text[message.index] = self.text.get(message.index, "") + message.chunk.text
                ids = self.ids.setdefault(message.index, [])
                ids.extend(token.id for token in message.chunk.tokens)
            case "completion":
                assert self.admission is not None, "a completion before the admission"
                assert message.index not in self.completions, "completed twice"
                self.completions[message.index] = message.completion


async def generate(front: Front, request: generation_pb2.GenerateRequest) -> Output:
    """Runs a request to its end."""
    output = Output()
    async for message in front.stub.Generate(request, timeout=10.0):
        output.take(message)
    return output


def ask(**sampling: Any) -> generation_pb2.GenerateRequest:
    """A request of text."""
    return generation_pb2.GenerateRequest(
        text=PROMPT, sampling=sampling_pb2.SamplingOptions(**{"seed": 3, **sampling})
    )


def expected(num_tokens: int, seed: int = 3) -> str:
    """The scripted output."""
    prompt = list(PROMPT.encode())
    return bytes(scripted_token(prompt, seed, at) for at in range(num_tokens)).decode()


async def ready(front: Front) -> None:
    """Waits until the service accepts requests."""
    async with asyncio.timeout(10.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if status.accepting:
                return
            await asyncio.sleep(0.01)


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


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(5.0):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_text_comes_out_with_usage_statistics_and_timing(start: Start) -> None:
    """The admission first, then chunks, then one completion that adds up."""
    front = await start()
    output = await generate(front, ask(max_tokens=8))
    assert output.text[0] == expected(8)
    assert bytes(output.ids[0]).decode() == expected(8)
    assert output.admission is not None
    assert (output.admission.model, output.admission.seed) == ("scripted", 3)
    assert output.admission.prompt_tokens == 3
    completion = output.completions[0]
    assert completion.finish_reason == generation_pb2.FINISH_REASON_LENGTH
    assert completion.usage.prompt_tokens == 3
    assert completion.usage.completion_tokens == 8
    assert completion.usage.cached_tokens == 2
    assert completion.speculation.rounds == 3
    assert completion.timing.prefill_s == 0.5
    assert 0 <= completion.timing.queue_s <= completion.timing.first_token_s
    assert completion.timing.first_token_s <= completion.timing.total_s


async def test_tokens_and_chat_are_prompts_too(start: Start) -> None:
    """The three forms reach the target as token ids."""
    front = await start()
    tokens = generation_pb2.TokenIds(ids=list(PROMPT.encode()))
    sampling = sampling_pb2.SamplingOptions(seed=3, max_tokens=4)
    by_ids = await generate(front, generation_pb2.GenerateRequest(tokens=tokens, sampling=sampling))
    assert by_ids.text[0] == expected(4)
    turn = generation_pb2.ChatMessage(role="user", content="hi")
    chat = generation_pb2.ChatMessages(messages=[turn])
    by_chat = await generate(front, generation_pb2.GenerateRequest(chat=chat, sampling=sampling))
    assert by_chat.admission is not None
    assert by_chat.admission.prompt_tokens == len("user: hi\n")


async def test_a_seed_is_chosen_and_told(start: Start) -> None:
    """Without a seed each request has its own, and repeating it repeats the text."""
    front = await start()
    request = generation_pb2.GenerateRequest(text=PROMPT, sampling={"max_tokens": 8})  # type: ignore[arg-type]
    first, second = await generate(front, request), await generate(front, request)
    assert first.admission is not None
    assert second.admission is not None
    assert first.admission.seed != second.admission.seed
    again = await generate(front, ask(seed=first.admission.seed, max_tokens=8))
    assert again.text == first.text


async def test_a_stop_token_ends_the_text_before_it(start: Start, target: ScriptedTarget) -> None:
    """Its token is reported and counted, its text is not there."""
    front = await start()
    stop = ord(expected(6)[5])
    first = expected(6).index(chr(stop))
    output = await generate(front, ask(max_tokens=20, stop_token_ids=[stop]))
    assert output.text.get(0, "") == expected(6)[:first]
    assert len(output.ids[0]) == first + 1
    completion = output.completions[0]
    assert completion.finish_reason == generation_pb2.FINISH_REASON_STOP_TOKEN
    assert completion.stop == str(stop)
    assert completion.usage.completion_tokens == first + 1


async def test_end_of_text_ends_unless_it_is_ignored(start: Start, target: ScriptedTarget) -> None:
    """The model's own end is a stop token; ignored, it is a token without text."""
    target.script.token = lambda prompt, seed, at: EOS if at == 4 else 97 + at
    front = await start()
    ended = await generate(front, ask(max_tokens=8))
    assert ended.text[0] == "abcd"
    assert ended.completions[0].finish_reason == generation_pb2.FINISH_REASON_STOP_TOKEN
    going_on = await generate(front, ask(max_tokens=8, ignore_eos=True))
    assert going_on.text[0] == "abcdfgh"
    assert len(going_on.ids[0]) == 8


@pytest.mark.parametrize("commit", [1, 4, 12])
async def test_a_stop_string_ends_the_text_and_closes_the_session(
    start: Start, target: ScriptedTarget, commit: int
) -> None:
    """Whether rounds cut it or hold it; the target's statistics of the closed session are told."""
    target.script.commit = commit
    target.script.token = lambda prompt, seed, at: ord("hello STOP more text"[at])
    front = await start()
    output = await generate(front, ask(max_tokens=20, stop=["STOP"]))
    assert output.text[0] == "hello "
    assert bytes(output.ids[0]) == b"hello STOP"
    completion = output.completions[0]
    assert completion.finish_reason == generation_pb2.FINISH_REASON_STOP_STRING
    assert completion.stop == "STOP"
    assert completion.usage.completion_tokens == 10
    assert target.closes == [target.opens[0].session]
    assert not target.running


async def test_a_stop_string_completes_without_an_answer_of_the_target(
    start: Start, target: ScriptedTarget
) -> None:
    """A target that says nothing about a closed session holds nobody up for long."""
    target.script.answers_close, target.script.pause_s = False, 0.05
    target.script.token = lambda prompt, seed, at: ord("hello STOP more text"[at])
    front = await start()
    output = await generate(front, ask(max_tokens=20, stop=["STOP"]))
    assert output.completions[0].finish_reason == generation_pb2.FINISH_REASON_STOP_STRING
    assert output.completions[0].speculation.plain_passes > 0


async def test_characters_are_never_split(start: Start, target: ScriptedTarget) -> None:
    """One byte a token and one token a round: chunks hold whole characters."""
    data = "日本語🙂é".encode()
    target.script.commit = 1
    target.script.token = lambda prompt, seed, at: data[at]
    front = await start()
    texts = []
    async for message in front.stub.Generate(ask(max_tokens=len(data)), timeout=10.0):
        texts.append(message.chunk.text)
    assert "".join(texts) == "日本語🙂é"
    assert all("\ufffd" not in text for text in texts)


async def test_sequences_have_derived_seeds_and_more_of_them_than_slots_finish(
    start: Start, target: ScriptedTarget
) -> None:
    """Each index is completed once; the first has the request's own seed; they share a group."""
    target.script.num_slots = 2
    front = await start()
    output = await generate(front, ask(max_tokens=8, n=5))
    assert sorted(output.completions) == [0, 1, 2, 3, 4]
    assert output.text[0] == expected(8)
    seeds = {command.sampling.seed for command in target.opens}
    assert len(seeds) == 5
    groups = {command.group for command in target.opens}
    assert len(groups) == 1
    assert groups != {0}


async def test_provenance_reaches_the_client(start: Start, target: ScriptedTarget) -> None:
    """Each token says who proposed it, as an index into the admission's drafters."""
    target.script.from_drafters = True
    front = await start(drafters=(("d0", "127.0.0.1:1"), ("d1", "127.0.0.1:2")))
    tokens: list[generation_pb2.Token] = []
    drafters: list[str] = []
    async for message in front.stub.Generate(ask(max_tokens=6), timeout=10.0):
        drafters += message.admission.drafters
        tokens += message.chunk.tokens
    assert drafters == ["d0", "d1"]
    origins = [t.drafter if t.HasField("drafter") else None for t in tokens]
    assert origins == [0, 1, None, 0, 1, None]


async def test_resuming_sends_only_what_is_missing(start: Start, target: ScriptedTarget) -> None:
    """The target starts from the received tokens; text and tokens go on; usage counts all."""
    front = await start()
    whole = expected(12)
    request = ask(max_tokens=12)
    request.resume.ids.extend(whole[:5].encode())
    output = await generate(front, request)
    assert output.text[0] == whole[5:]
    assert list(target.opens[0].committed) == list(whole[:5].encode())
    assert output.completions[0].usage.completion_tokens == 12


async def test_a_whole_output_is_resumed_without_a_slot(
    start: Start, target: ScriptedTarget
) -> None:
    """Only the completion was missing, and only the completion comes."""
    front = await start()
    request = ask(max_tokens=5)
    request.resume.ids.extend(expected(5).encode())
    output = await generate(front, request)
    assert output.ids == {}
    assert output.completions[0].finish_reason == generation_pb2.FINISH_REASON_LENGTH
    assert target.opens == []


# -- what breaks -------------------------------------------------------------------------------------------------------


async def test_a_broken_stream_is_mended_token_for_token(
    start: Start, target: ScriptedTarget
) -> None:
    """The client sees a pause; statistics of both parts add up."""
    target.script.break_after = 3
    front = await start()
    output = await generate(front, ask(max_tokens=20))
    assert output.text[0] == expected(20)
    assert bytes(output.ids[0]).decode() == expected(20)
    first, second = target.opens
    assert (len(first.committed), len(second.committed)) == (0, 9)
    assert first.sampling == second.sampling
    assert first.session != second.session
    completion = output.completions[0]
    assert completion.speculation.plain_passes == 3
    assert completion.speculation.rounds == 4


async def test_a_lost_commit_is_asked_for_again(start: Start, target: ScriptedTarget) -> None:
    """A gap in the epochs opens the session anew; nothing is delivered twice or left out."""
    target.script.skip_epoch_after = 2
    front = await start()
    output = await generate(front, ask(max_tokens=20))
    assert output.text[0] == expected(20)
    assert len(target.opens) == 2


async def test_another_target_takes_over(serve: Serve, target: ScriptedTarget) -> None:
    """When a target is gone for good, its sequences go on at another."""
    other = ScriptedTarget(Script(), name="target-1")
    await other.start()
    target.script.pause_s = other.script.pause_s = 0.01
    front = await serve(targets=(target.address, other.address))
    await until(lambda: all(link.is_up for link in links(front)))
    runs = [asyncio.ensure_future(generate(front, ask(max_tokens=60))) for _ in range(4)]
    await until(lambda: len(target.running) == len(other.running) == 2 and target.rounds > 4)
    await target.stop()
    for output in await asyncio.gather(*runs):
        assert output.text[0] == expected(60)
    assert any(command.committed for command in other.opens)
    await other.stop()


def links(front: Front) -> list[Any]:
    """The coordinator's links to targets."""
    assert front.coordinator._links is not None
    return list(front.coordinator._links.targets.values())


async def test_an_opening_that_fails_is_tried_again(start: Start, target: ScriptedTarget) -> None:
    """A target that says it is full is asked again."""
    target.script.fail_opens = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")] * 2
    front = await start()
    output = await generate(front, ask(max_tokens=8))
    assert output.text[0] == expected(8)
    assert len(target.opens) == 3


async def test_a_target_that_always_fails_is_given_up(start: Start, target: ScriptedTarget) -> None:
    """After some tries the client is told why."""
    target.script.fail_opens = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "always full")] * 20
    front = await start()
    error = await refusal(front, ask())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "always full" in (error.details() or "")


async def test_what_the_target_refuses_for_good_reaches_the_client(
    start: Start, target: ScriptedTarget
) -> None:
    """With code and words, at once."""
    target.script.fail_opens = [(grpc.StatusCode.INVALID_ARGUMENT, "not like that")]
    front = await start()
    error = await refusal(front, ask())
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "not like that")
    assert len(target.opens) == 1


async def test_without_any_target_requests_are_refused(serve: Serve) -> None:
    """At once, with advice to retry."""
    front = await serve(targets=("127.0.0.1:1",))
    error = await refusal(front, ask())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "no target is reachable" in (error.details() or "")
    assert "grpc-retry-pushback-ms" in metadata(error)


async def test_a_target_that_stays_away_fails_who_waits(
    start: Start, target: ScriptedTarget
) -> None:
    """The pause is bounded."""
    target.script.pause_s = 0.02
    front = await start(target_wait_s=0.3)
    running = asyncio.ensure_future(refusal(front, ask(max_tokens=60)))
    await until(lambda: target.rounds > 1)
    await target.stop()
    error = await running
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    again = await refusal(front, ask())
    assert again.code() is grpc.StatusCode.UNAVAILABLE


# -- admission ---------------------------------------------------------------------------------------------------------


async def test_a_full_queue_refuses_with_advice(start: Start, target: ScriptedTarget) -> None:
    """One decodes, one waits, the third is told when to come back; the others are not disturbed."""
    target.script.num_slots, target.script.hold = 1, asyncio.Event()
    front = await start(max_waiting=1)
    first = asyncio.ensure_future(generate(front, ask(max_tokens=4)))
    await until(lambda: len(target.running) == 1)
    second = asyncio.ensure_future(generate(front, ask(max_tokens=4)))
    await waiting(front, 1)
    error = await refusal(front, ask())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert metadata(error)["grpc-retry-pushback-ms"] == "1000"
    status = status_pb2.Status.FromString(metadata(error)["grpc-status-details-bin"])
    retry_info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(retry_info)
    assert retry_info.retry_delay.seconds == 1
    target.script.hold.set()
    for output in await asyncio.gather(first, second):
        assert output.text[0] == expected(4)


async def waiting(front: Front, number: int) -> None:
    """Waits until so many requests wait."""
    async with asyncio.timeout(5.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if status.waiting == number:
                return
            await asyncio.sleep(0.01)


async def test_a_deadline_in_the_queue_is_kept(start: Start, target: ScriptedTarget) -> None:
    """Who waits too long is told so and leaves no trace."""
    target.script.num_slots, target.script.hold = 1, asyncio.Event()
    front = await start()
    first = asyncio.ensure_future(generate(front, ask(max_tokens=4)))
    await until(lambda: len(target.running) == 1)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        async for _ in front.stub.Generate(ask(), timeout=0.2):
            pass
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await waiting(front, 0)
    target.script.hold.set()
    assert (await first).text[0] == expected(4)
    assert len(target.opens) == 1


@pytest.mark.parametrize("way", ["cancel", "deadline", "disconnect"])
async def test_leaving_closes_the_session(start: Start, target: ScriptedTarget, way: str) -> None:
    """However a client leaves, the target is told and the slot is free for the next."""
    target.script.num_slots, target.script.pause_s, target.script.commit = 1, 0.01, 1
    front = await start()
    channel = grpc.aio.insecure_channel(front.address)
    stub = type(front.stub)(channel)
    call = stub.Generate(ask(max_tokens=60), timeout=0.3 if way == "deadline" else 30.0)
    await until_read(call, 3)
    match way:
        case "cancel":
            call.cancel()
        case "disconnect":
            await channel.close()
        case _:
            with pytest.raises(grpc.aio.AioRpcError):
                await until_read(call, 100)
    await until(lambda: not target.running)
    await channel.close()
    assert len(target.closes) == 1
    target.script.pause_s = 0.0
    assert (await generate(front, ask(max_tokens=4))).text[0] == expected(4)


async def until_read(call: Any, number: int) -> None:
    """Reads so many messages."""
    for _ in range(number):
        await call.read()


# -- the other methods -------------------------------------------------------------------------------------------------


async def test_aborting_ends_a_running_request(start: Start, target: ScriptedTarget) -> None:
    """Its stream completes with what there is; a second abort says that nothing ran."""
    target.script.hold = asyncio.Event()
    front = await start()
    request = ask(max_tokens=20, n=2)
    request.request_id = "mine"
    running = asyncio.ensure_future(generate(front, request))
    await until(lambda: len(target.running) == 2)
    abort = generation_pb2.AbortRequest(request_id="mine")
    assert (await front.stub.Abort(abort)).was_running
    output = await running
    reasons = {completion.finish_reason for completion in output.completions.values()}
    assert reasons == {generation_pb2.FINISH_REASON_ABORTED}
    assert sorted(output.completions) == [0, 1]
    await until(lambda: not target.running)
    assert not (await front.stub.Abort(abort)).was_running


async def test_aborting_ends_a_waiting_request(start: Start, target: ScriptedTarget) -> None:
    """It is admitted in name, completed as aborted, and never reaches the target."""
    target.script.num_slots, target.script.hold = 1, asyncio.Event()
    front = await start()
    first = asyncio.ensure_future(generate(front, ask(max_tokens=4)))
    await until(lambda: len(target.running) == 1)
    request = ask()
    request.request_id = "waits"
    second = asyncio.ensure_future(generate(front, request))
    await waiting(front, 1)
    await front.stub.Abort(generation_pb2.AbortRequest(request_id="waits"))
    output = await second
    assert output.completions[0].finish_reason == generation_pb2.FINISH_REASON_ABORTED
    target.script.hold.set()
    await first
    assert len(target.opens) == 1


async def test_a_name_is_taken_while_its_request_runs(start: Start, target: ScriptedTarget) -> None:
    """The second of the same name is refused and does not disturb the first; then the name is free."""
    target.script.hold = asyncio.Event()
    front = await start()
    request = ask(max_tokens=4)
    request.request_id = "mine"
    first = asyncio.ensure_future(generate(front, request))
    await until(lambda: len(target.running) == 1)
    error = await refusal(front, request)
    assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    target.script.hold.set()
    assert (await first).text[0] == expected(4)
    assert (await generate(front, request)).text[0] == expected(4)


async def test_models_are_listed(start: Start) -> None:
    """With what a client needs to know."""
    front = await start(drafters=(("d0", "127.0.0.1:1"),))
    (model,) = (await front.stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert (model.name, model.vocab_size, model.max_context) == ("scripted", 256, 64)
    assert list(model.eos_token_ids) == [EOS]
    assert model.has_chat_template
    assert [(drafter.name, drafter.ready) for drafter in model.drafters] == [("d0", False)]


async def test_text_and_tokens_turn_into_each_other(start: Start) -> None:
    """Short and long text, special tokens left out or not, a conversation."""
    front = await start()
    for text in ("héllo", "x" * 40_000):
        ids = (await front.stub.Tokenize(generation_pb2.TokenizeRequest(text=text))).ids
        detokenise = generation_pb2.DetokenizeRequest(ids=ids)
        assert (await front.stub.Detokenize(detokenise)).text == text
    special = generation_pb2.DetokenizeRequest(ids=[EOS, 97])
    assert (await front.stub.Detokenize(special)).text == "a"
    special.skip_special_tokens = False
    assert (await front.stub.Detokenize(special)).text == "\x00a"
    turn = generation_pb2.ChatMessage(role="user", content="hi")
    chat = generation_pb2.TokenizeRequest(chat=generation_pb2.ChatMessages(messages=[turn]))
    assert bytes((await front.stub.Tokenize(chat)).ids) == b"user: hi\n"


async def test_status_tells_who_serves(start: Start, target: ScriptedTarget) -> None:
    """Coordinator, target and drafter, and how many requests run."""
    target.script.hold = asyncio.Event()
    front = await start(drafters=(("d0", "127.0.0.1:1"),))
    running = asyncio.ensure_future(generate(front, ask(max_tokens=4)))
    await until(lambda: len(target.running) == 1)
    status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert (status.running, status.waiting, status.accepting) == (1, 0, True)
    told = {actor.name: actor for actor in status.actors}
    assert told["coordinator"].role == "coordinator"
    assert told["target-0"].ready
    assert (told["target-0"].sessions, told["target-0"].capacity) == (1, 4)
    assert not told["d0"].ready
    target.script.hold.set()
    await running
    after = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert (after.running, after.finished) == (0, 1)


# -- bad input ---------------------------------------------------------------------------------------------------------


async def refusal(front: Front, request: Any) -> grpc.aio.AioRpcError:
    """How a request is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        async for _ in front.stub.Generate(request, timeout=10.0):
            pass
    return failed.value


def metadata(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """Trailing metadata of a refusal."""
    return dict(error.trailing_metadata() or ())


def bad(**fields: Any) -> generation_pb2.GenerateRequest:
    """A request of some fields."""
    return generation_pb2.GenerateRequest(**fields)


INVALID, RANGE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE
NOT_FOUND = grpc.StatusCode.NOT_FOUND

BAD: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
    ({}, INVALID, "prompt"),
    ({"text": ""}, INVALID, "text"),
    ({"tokens": {"ids": []}}, INVALID, "tokens.ids"),
    ({"tokens": {"ids": [256]}}, RANGE, "tokens.ids[0]"),
    ({"text": "x" * 64}, RANGE, "text"),
    ({"text": "x" * 3_000_000}, RANGE, "text"),
    ({"chat": {"messages": []}}, INVALID, "chat.messages"),
    ({"chat": {"messages": [{"role": "nobody", "content": "x"}]}}, INVALID, "chat.messages"),
    ({"text": "x", "model": "other"}, NOT_FOUND, "model"),
    ({"text": "x", "request_id": "a b"}, INVALID, "request_id"),
    ({"text": "x", "sampling": {"temperature": -1.0}}, INVALID, "sampling.temperature"),
    ({"text": "x", "sampling": {"temperature": float("nan")}}, INVALID, "sampling.temperature"),
    ({"text": "x", "sampling": {"top_p": 1.5}}, INVALID, "sampling.top_p"),
    ({"text": "x", "sampling": {"max_tokens": 0}}, RANGE, "sampling.max_tokens"),
    ({"text": "x", "sampling": {"max_tokens": 4_000_000_000}}, RANGE, "sampling.max_tokens"),
    ({"text": "x", "resume": {"ids": [1]}}, INVALID, "resume"),
    ({"text": "x", "speculation": {"drafters": ["d9"]}}, NOT_FOUND, "speculation.drafters[0]"),
]


async def test_bad_input_is_refused_and_changes_nothing(
    start: Start, target: ScriptedTarget
) -> None:
    """Each with its code and the field as rich detail; the service goes on as if nothing had been."""
    front = await start()
    for fields, code, field in BAD:
        error = await refusal(front, bad(**fields))
        assert error.code() is code, (fields, error.details())
        status = status_pb2.Status.FromString(metadata(error)["grpc-status-details-bin"])
        bad_request = error_details_pb2.BadRequest()
        assert status.details[0].Unpack(bad_request)
        assert bad_request.field_violations[0].field == field
        assert (error.details() or "").startswith(field)
    after = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert (after.running, after.waiting) == (0, 0)
    assert target.opens == []
    assert (await generate(front, ask(max_tokens=4))).text[0] == expected(4)


async def test_what_is_no_message_is_refused(start: Start) -> None:
    """Invalid UTF-8 and garbage, on a streaming and a plain method."""
    front = await start()
    invalid_utf8 = b"\x1a\x02\xff\xfe"
    for data in (invalid_utf8, b"\xff\xff\xff"):
        generate_raw: Any = front.channel.unary_stream("/outrider.v1.GenerationService/Generate")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await generate_raw(data, timeout=5.0).read()
        assert failed.value.code() is INVALID
        assert "not a valid outrider.v1.GenerateRequest" in (failed.value.details() or "")
    tokenize_raw: Any = front.channel.unary_unary("/outrider.v1.GenerationService/Tokenize")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await tokenize_raw(b"\x12\x02\xff\xfe", timeout=5.0)
    assert failed.value.code() is INVALID


async def test_too_large_a_message_is_refused(start: Start) -> None:
    """Five mebibytes are more than the limit, and the service lives on."""
    front = await start()
    error = await refusal(front, bad(text="x" * (5 << 20)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in (error.details() or "")
    assert (await generate(front, ask(max_tokens=4))).text[0] == expected(4)


async def test_a_service_without_a_tokenizer_takes_token_ids(start: Start) -> None:
    """Ids in, ids out; text is refused with a way out."""
    front = await start(codec=None)
    tokens = generation_pb2.TokenIds(ids=list(PROMPT.encode()))
    output = await generate(
        front,
        generation_pb2.GenerateRequest(
            tokens=tokens, sampling=sampling_pb2.SamplingOptions(seed=3, max_tokens=5)
        ),
    )
    assert bytes(output.ids[0]).decode() == expected(5)
    assert output.text[0] == ""
    error = await refusal(front, ask())
    assert error.code() is INVALID
    assert "send the prompt as tokens" in (error.details() or "")
