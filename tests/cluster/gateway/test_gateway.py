"""The public service, over real gRPC, in front of a scripted target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no stubs
from tests.cluster.asking import (
    PROMPT,
    Start,
    ask,
    expected,
    generate,
    metadata,
    refusal,
    until,
)
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import EOS, VOCAB, Script, ScriptedTarget

from outrider.v1 import generation_pb2, sampling_pb2


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
    target.script.token = held_from(target, len("hello STOP") - 1, letters="hello STOP more text")
    front = await start()
    output = await generate(front, ask(max_tokens=20, stop=["STOP"]))
    assert output.text[0] == "hello "
    assert bytes(output.ids[0]) == b"hello STOP"
    completion = output.completions[0]
    assert completion.finish_reason == generation_pb2.FINISH_REASON_STOP_STRING
    assert completion.stop == "STOP"
    assert completion.usage.completion_tokens == 10
    assert completion.speculation.rounds == 7, "what the target told of the closed session"
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
    async for message in front.stub.Generate(ask(max_tokens=len(data)), timeout=60.0):
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
    async for message in front.stub.Generate(ask(max_tokens=6), timeout=60.0):
        drafters += message.admission.drafters
        tokens += message.chunk.tokens
    assert drafters == ["d0", "d1"]
    origins = [t.drafter if t.HasField("drafter") else None for t in tokens]
    assert origins == [0, 1, None, 0, 1, None]


async def test_log_probabilities_reach_the_client(start: Start, target: ScriptedTarget) -> None:
    """Only if they are asked for, and with the provenance."""
    target.script.from_drafters = True
    front = await start(drafters=(("d0", "127.0.0.1:1"),))
    plain = [t async for t in _tokens(front, ask(max_tokens=6))]
    told = [t async for t in _tokens(front, ask(max_tokens=6, logprobs=0))]
    assert not any(token.HasField("logprob") for token in plain)
    assert [token.logprob for token in told] == [pytest.approx(-token.id / VOCAB) for token in told]
    for token in told:
        token.ClearField("logprob")
    assert told == plain


async def test_a_client_that_does_not_read_holds_nobody_back(
    start: Start, target: ScriptedTarget
) -> None:
    """Its text waits for it, whole; others go on."""
    target.script.max_context, target.script.commit = 100_000, 50
    front = await start(default_max_tokens=50_000)
    slow = front.stub.Generate(ask(max_tokens=50_000), timeout=60.0)
    first = await anext(aiter(slow))
    assert first.HasField("admission")
    assert (await generate(front, ask(max_tokens=12))).text[0] == expected(12)
    text = ""
    async for message in slow:
        text += message.chunk.text
    assert text == expected(50_000)


async def _tokens(
    front: Front, request: generation_pb2.GenerateRequest
) -> AsyncIterator[generation_pb2.Token]:
    async for message in front.stub.Generate(request, timeout=60.0):
        for token in message.chunk.tokens:
            yield token


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
    """A gap in the epochs opens the session again; nothing is delivered twice or left out."""
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
    await targets_ready(front, 2)
    runs = [asyncio.ensure_future(generate(front, ask(max_tokens=60))) for _ in range(4)]
    await until(lambda: len(target.running) == len(other.running) == 2 and target.rounds > 4)
    await target.stop()
    for output in await asyncio.gather(*runs):
        assert output.text[0] == expected(60)
    assert any(command.committed for command in other.opens)
    await other.stop()


async def targets_ready(front: Front, number: int) -> None:
    """Waits until so many targets are connected."""
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if sum(one.ready and one.role == "target" for one in status.actors) == number:
                return


async def test_an_opening_that_fails_is_tried_again(start: Start, target: ScriptedTarget) -> None:
    """A target that says it is full is asked again."""
    target.script.fail_opens = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")] * 2
    front = await start()
    output = await generate(front, ask(max_tokens=8))
    assert output.text[0] == expected(8)
    assert len(target.opens) == 3


async def test_a_target_that_always_fails_is_given_up(start: Start, target: ScriptedTarget) -> None:
    """After some tries the client is told why."""
    target.script.fail_opens = [(grpc.StatusCode.UNAVAILABLE, "always broken")] * 20
    front = await start()
    error = await refusal(front, ask())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "always broken" in (error.details() or "")


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


async def test_who_waits_for_a_slot_is_told(start: Start, target: ScriptedTarget) -> None:
    """At once, so that the client knows that it was taken in should the coordinator end; who has a slot needs no such word."""
    target.script.num_slots, target.script.hold = 1, asyncio.Event()
    front = await start()
    first, second = front.stub.Generate(ask(max_tokens=4)), front.stub.Generate(ask(max_tokens=4))
    told = await asyncio.wait_for(second.initial_metadata(), 60.0)
    assert ("outrider-queued", "1") in tuple(told)
    assert not any(key == "outrider-queued" for key, _ in await first.initial_metadata())
    first.cancel()
    target.script.hold.set()
    assert [one async for one in second][-1].HasField("completion")


async def waiting(front: Front, number: int) -> None:
    """Waits until so many requests wait."""
    async with asyncio.timeout(60.0):
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
    target.script.num_slots, target.script.commit = 1, 1
    front = await start()
    target.script.token = held_from(target, 6, letters=expected(60))
    channel = grpc.aio.insecure_channel(front.address)
    stub = type(front.stub)(channel)
    call = stub.Generate(ask(max_tokens=60), timeout=5.0 if way == "deadline" else 60.0)
    # The admission and some text: all that waits for a writer comes in one message, so there may be no more of them.
    await until_read(call, 2)
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
    target.script.hold = None
    assert (await generate(front, ask(max_tokens=4))).text[0] == expected(4)


def held_from(target: ScriptedTarget, held: int, *, letters: str) -> Callable[..., int]:
    """A script of letters. No round begins after the one that reached a position: the target cannot end by itself."""

    def token(prompt: Sequence[int], seed: int, at: int) -> int:
        if at == held:
            target.script.hold = asyncio.Event()
        return ord(letters[at])

    return token


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
