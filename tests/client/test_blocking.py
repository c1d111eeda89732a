"""The blocking client against a scripted service over real gRPC."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING

import grpc
import pytest

from outrider.client import (
    NO_RETRY,
    Admission,
    AlreadyRunning,
    AsyncClient,
    Cancelled,
    Client,
    Completion,
    DeadlineExceeded,
    FinishReason,
    GenerationStream,
    Health,
    InvalidRequest,
    Message,
    ModelExchanged,
    NotFound,
    Origin,
    Overloaded,
    RetryPolicy,
    SamplingOptions,
    SpeculationOptions,
    TextChunk,
    Unavailable,
    Verifier,
)
from outrider.client.blocking_stream import RunningTrace
from outrider.v1 import sampling_pb2

if TYPE_CHECKING:
    from tests.client.conftest import Failure, FakeService, MakeFake

QUICK = RetryPolicy(initial_backoff_s=0.01, max_backoff_s=0.05)

HEAD_START_S = 1.0
"""After which a thread waits for an event that it is about to wait for."""


def test_events_come_in_order_and_once(fake: FakeService) -> None:
    """A stream holds the admission, chunks whose tokens are the output, and one completion."""
    with Client(fake.address) as client:
        events = list(client.stream("hello", sampling=SamplingOptions(seed=3)))
    assert isinstance(events[0], Admission)
    assert isinstance(events[-1], Completion)
    chunks = [event for event in events if isinstance(event, TextChunk)]
    assert fake.output(3) == bytes(token.id for event in chunks for token in event.tokens)
    assert len(chunks) == len(events) - 2


def test_generate_returns_the_whole(fake: FakeService) -> None:
    """Text, tokens with their origin, usage, statistics and timing reach the result."""
    with Client(fake.address) as client:
        result = client.generate("hello", sampling=SamplingOptions(seed=3, max_tokens=30))
    assert fake.output(3, max_tokens=30).decode(errors="replace") == result.text
    assert result.admission.seed == 3
    assert result.completion.finish_reason is FinishReason.LENGTH
    assert result.completion.usage.completion_tokens == 30
    assert result.completion.speculation.accepted_by_depth == (7, 3)
    assert result.completion.timing.prefill_s == 0.002
    assert {(token.origin, token.drafter) for token in result.tokens} == {
        (Origin.DRAFTER, "draft-small"),
        (Origin.DRAFTER, "draft-tiny"),
        (Origin.TARGET, None),
    }
    assert result.tokens[0].logprob == -0.5
    assert result.resumes == 0
    assert not fake.ended.is_set()


def test_options_reach_the_service_and_absent_ones_stay_absent(fake: FakeService) -> None:
    """A zero that is written is a zero; what is not set is not sent."""
    with Client(fake.address) as client:
        client.generate(
            messages=[Message("user", "hi")],
            model="demo",
            sampling=SamplingOptions(
                temperature=0.0, logit_bias={5: -100.0}, stop=("x", "yz"), ignore_eos=False
            ),
            speculation=SpeculationOptions(
                enabled=True, verifier=Verifier.MCSD_WITH_REPLACEMENT, drafters=("draft-tiny",)
            ),
            request_id="my-name",
        )
    (request,) = fake.requests
    assert request.request_id == "my-name"
    assert [(turn.role, turn.content) for turn in request.chat.messages] == [("user", "hi")]
    assert request.sampling.HasField("temperature")
    assert request.sampling.temperature == 0.0
    assert request.sampling.HasField("ignore_eos")
    assert not request.sampling.HasField("top_p")
    assert not request.sampling.HasField("seed")
    assert dict(request.sampling.logit_bias) == {5: -100.0}
    assert list(request.sampling.stop) == ["x", "yz"]
    assert request.speculation.verifier == sampling_pb2.VERIFIER_MCSD_WITH_REPLACEMENT
    assert list(request.speculation.drafters) == ["draft-tiny"]
    assert not request.speculation.HasField("max_nodes")


def test_methods_say_what_they_give() -> None:
    """As `help` shows them, with the arguments of the asyncio client's."""
    for name, given in (("stream", GenerationStream), ("start_trace", RunningTrace)):
        shown = signature(getattr(Client, name))
        assert shown.return_annotation == given.__name__
        assert shown.parameters == signature(getattr(AsyncClient, name)).parameters
    assert signature(Client.generate) == signature(AsyncClient.generate)


def test_request_ids_differ(fake: FakeService) -> None:
    """Each request without a name gets one of its own."""
    with Client(fake.address) as client:
        client.generate("a")
        client.generate("a")
    first, second = (request.request_id for request in fake.requests)
    assert first
    assert second
    assert first != second


def test_break_cancels(fake: FakeService) -> None:
    """Leaving the loop ends the call at the service."""
    fake.stall_after = 6
    with Client(fake.address) as client:
        for event in client.stream("hello"):
            if isinstance(event, TextChunk):
                break
        assert fake.ended.wait(60)


def test_exception_in_the_loop_cancels(fake: FakeService) -> None:
    """An error in the caller's code ends the call at the service."""
    fake.stall_after = 6
    with Client(fake.address) as client:
        with pytest.raises(KeyError):
            fail_at_first_event(client)
        assert fake.ended.wait(60)


def fail_at_first_event(client: Client) -> None:
    """What a caller's bug looks like."""
    for event in client.stream("hello"):
        raise KeyError(event)


def test_close_cancels_and_iteration_ends(fake: FakeService) -> None:
    """A closed stream ends its call and gives nothing more."""
    fake.stall_after = 6
    with Client(fake.address) as client:
        with client.stream("hello") as stream:
            next(stream)
        assert fake.ended.wait(60)
        assert list(stream) == []


def until_it_stalls(stream: GenerationStream) -> GenerationStream:
    """Reads what comes before the service stalls, after six tokens."""
    num_tokens = 0
    while num_tokens < 6:
        event = next(stream)
        num_tokens += len(event.tokens) if isinstance(event, TextChunk) else 0
    return stream


def test_cancel_from_another_thread(fake: FakeService) -> None:
    """A thread that waits for an event gets Cancelled, and nothing is retried."""
    fake.stall_after = 6
    with Client(fake.address) as client:
        stream = until_it_stalls(client.stream("hello"))
        timer = threading.Timer(HEAD_START_S, stream.cancel)
        timer.start()
        with pytest.raises(Cancelled, match="cancelled"):
            list(stream)
        timer.join(60)
    assert len(fake.requests) == 1


def test_one_thread_reads_a_stream(fake: FakeService) -> None:
    """A second one is told so, and the first goes on as if there had been none."""
    fake.stall_from = 0
    read: list[object] = []
    with Client(fake.address) as client:
        stream = client.stream("hello", sampling=SamplingOptions(seed=3))
        reader = threading.Thread(target=lambda: read.extend(stream))
        reader.start()
        assert fake.began.wait(60)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="is being read already"):
                next(stream)
        fake.go_on.set()
        reader.join(60)
    chunks = [event for event in read if isinstance(event, TextChunk)]
    assert fake.output(3) == bytes(token.id for event in chunks for token in event.tokens)
    assert isinstance(read[-1], Completion)


def test_closing_the_client_cancels(fake: FakeService) -> None:
    """Whoever waits for an event of a client that another thread closes gets Cancelled; closing again changes nothing."""
    fake.stall_after = 6
    client = Client(fake.address)
    stream = until_it_stalls(client.stream("hello"))
    timer = threading.Timer(HEAD_START_S, client.close)
    timer.start()
    with pytest.raises(Cancelled):
        list(stream)
    timer.join(60)
    client.close()
    assert fake.ended.wait(60)


def test_closing_the_client_between_two_events(fake: FakeService) -> None:
    """Whoever asks for the next one gets Cancelled: a text that is cut does not look whole. One that is whole is."""
    client = Client(fake.address)
    stream = client.stream("hello")
    next(stream)
    client.close()
    with pytest.raises(Cancelled):
        next(stream)
    assert list(stream) == []
    whole = client.stream("hello")
    while not isinstance(next(whole), Completion):
        pass
    client.close()
    assert list(whole) == []


def test_closing_amid_the_calls_of_other_threads(fake: FakeService) -> None:
    """Each is answered or cancelled, wherever it is when the client is closed: none fails in another way."""
    is_over = threading.Event()
    failures: set[str] = set()
    client = Client(fake.address, retry=QUICK)

    def call(one: Callable[[], object]) -> None:
        while not is_over.is_set():
            try:
                one()
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 - told by the test
                failures.add(repr(error))

    calls = [client.status, lambda: client.generate("hello")] * 3
    threads = [threading.Thread(target=call, args=(one,)) for one in calls]
    for thread in threads:
        thread.start()
    for _ in range(300):
        client.close()
        time.sleep(0.001)
    is_over.set()
    for thread in threads:
        thread.join(60)
    client.close()
    assert failures == set()


def test_a_stream_outlives_the_name_of_its_client(fake: FakeService) -> None:
    """A client that nobody holds any more is not closed under a stream that goes on."""
    chunks = [
        event for event in Client(fake.address).stream("hello") if isinstance(event, TextChunk)
    ]
    assert sum(len(event.tokens) for event in chunks) == 24


def test_threads_share_a_client(fake: FakeService) -> None:
    """Each gets its own text."""
    texts: dict[int, str] = {}
    with Client(fake.address) as client:

        def run(seed: int) -> None:
            texts[seed] = client.generate("hello", sampling=SamplingOptions(seed=seed)).text

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert texts == {seed: fake.output(seed).decode(errors="replace") for seed in range(6)}


async def test_within_a_running_event_loop(fake: FakeService) -> None:
    """It blocks the loop, as it blocks any thread, and works; in a thread beside the loop, too."""
    with Client(fake.address) as client:
        assert client.generate("hello").text
        assert (await asyncio.to_thread(client.generate, "hello")).text


FORKING = """
import os, sys
from outrider.client import Client

client = Client(sys.argv[1])
assert client.generate("hello").text
child = os.fork()
for one in (client, Client(sys.argv[1])):
    assert one.generate("hello", timeout_s=20).text
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("both")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_goes_on(fake: FakeService) -> None:
    """A process that was forked off one with a client uses that client, and new ones; so does the other."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, fake.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


def test_timeout_ends_a_stream(fake: FakeService) -> None:
    """The deadline reaches the service, the error holds what had arrived."""
    fake.stall_after = 6
    for timeout_s in (0.3, 3.0, 30.0):  # a slow machine may not answer within the first
        with (
            Client(fake.address, timeout_s=timeout_s) as client,
            pytest.raises(DeadlineExceeded) as caught,
        ):
            client.generate("hello", sampling=SamplingOptions(seed=3))
        if caught.value.received_tokens:
            break
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert fake.output(3)[:6] == bytes(caught.value.received_tokens)
    assert caught.value.request_id == fake.requests[-1].request_id
    assert fake.ended.wait(60)


def test_a_call_that_a_service_cancels_is_tried_again(
    fake: FakeService, failure: type[Failure]
) -> None:
    """As one that ends does: with what it has not admitted yet, and with what it has."""
    cut = grpc.StatusCode.CANCELLED
    fake.failures = [failure(code=cut), failure(code=cut, after_tokens=3)]
    with Client(fake.address, retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(seed=3, max_tokens=20))
    assert fake.output(3, max_tokens=20) == bytes(token.id for token in result.tokens)
    assert len(fake.requests) == 3


def test_broken_stream_is_resumed(fake: FakeService, failure: type[Failure]) -> None:
    """After breaks amid characters the output is whole: no token twice, none missing, and no text either."""
    cut = grpc.StatusCode.UNAVAILABLE
    fake.failures = [failure(code=cut, after_tokens=n) for n in (9, 2, 0, 1, 4)]
    with Client(fake.address, retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(max_tokens=40))
    whole = fake.output(41, max_tokens=40)
    assert whole == bytes(token.id for token in result.tokens)
    assert whole.decode(errors="replace") == result.text
    assert result.resumes == 5
    assert [len(request.resume.ids) for request in fake.requests] == [0, 9, 11, 11, 12, 16]
    assert {request.sampling.seed for request in fake.requests[1:]} == {41}
    assert len({request.request_id for request in fake.requests}) == 1


def test_resume_moves_to_the_next_address(make_fake: MakeFake, failure: type[Failure]) -> None:
    """A stream that breaks at one service goes on at another."""
    one, two = make_fake("one"), make_fake("two")
    one.failures = [failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9)] * 5
    with Client([one.address, two.address], retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(seed=5))
    assert one.output(5) == bytes(token.id for token in result.tokens)
    assert (len(one.requests), len(two.requests)) == (1, 1)
    assert len(two.requests[0].resume.ids) == 9


def test_a_text_is_never_of_two_models(make_fake: MakeFake, failure: type[Failure]) -> None:
    """A stream that breaks goes on where its model is still served, past addresses that serve another; where none does, the error
    says so and holds what had arrived."""
    one, two, three = make_fake("one"), make_fake("two"), make_fake("three")
    two.model_fingerprint = "beef"
    cut = failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9)
    one.failures = [cut]
    with Client([one.address, two.address, three.address], retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(seed=5))
    assert one.output(5) == bytes(token.id for token in result.tokens)
    assert [len(fake.requests) for fake in (one, two, three)] == [1, 1, 1]
    assert three.requests[0].model_fingerprint == "f00d"

    one.failures = [cut, *[failure(code=grpc.StatusCode.UNAVAILABLE)] * 9]
    with Client([one.address, two.address], retry=QUICK) as client:
        with pytest.raises(ModelExchanged, match="9 tokens were received") as caught:
            client.generate("hello", sampling=SamplingOptions(seed=5))
        assert one.output(5)[:9] == bytes(caught.value.received_tokens)
        with pytest.raises(ModelExchanged):
            client.generate("hello", model_fingerprint="cafe")


def test_an_address_that_is_named_twice(fake: FakeService) -> None:
    """Is one: who refuses there has refused for good."""
    twice = [fake.address, fake.address]
    with Client(twice, retry=QUICK) as client, pytest.raises(ModelExchanged):
        client.generate("hello", model_fingerprint="cafe")


def test_resume_gives_up(fake: FakeService, failure: type[Failure]) -> None:
    """Without any progress the outage is bounded; the error holds what had arrived."""
    cut = grpc.StatusCode.UNAVAILABLE
    fake.failures = [failure(code=cut, after_tokens=9)] + [failure(code=cut)] * 5000
    policy = RetryPolicy(patience_s=1.0, initial_backoff_s=0.01, max_backoff_s=0.02)
    with Client(fake.address, retry=policy) as client, pytest.raises(Unavailable) as caught:
        client.generate("hello", sampling=SamplingOptions(seed=5))
    assert len(fake.requests) > 1
    assert fake.output(5)[:9] == bytes(caught.value.received_tokens)


def test_no_retry_never_resumes(fake: FakeService, failure: type[Failure]) -> None:
    """Retrying can be switched off."""
    fake.failures = [failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9)]
    with Client(fake.address, retry=NO_RETRY) as client, pytest.raises(Unavailable):
        client.generate("hello")
    assert len(fake.requests) == 1


def test_several_sequences_are_not_resumed(fake: FakeService, failure: type[Failure]) -> None:
    """With n > 1 a broken stream is an error once output has arrived."""
    fake.failures = [failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=30)]
    with Client(fake.address, retry=QUICK) as client, pytest.raises(Unavailable):
        client.generate("hello", sampling=SamplingOptions(n=2))
    assert len(fake.requests) == 1


def test_several_sequences_begin_again_before_any_output(
    fake: FakeService, failure: type[Failure]
) -> None:
    """A stream that broke behind its admission is asked for anew, with the seed that was told: there is nothing to go on with."""
    fake.failures = [failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=0)]
    with Client(fake.address, retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(n=2))
    assert [request.HasField("resume") for request in fake.requests] == [False, False]
    assert [fake.output(41, index=index) for index in range(2)] == [
        bytes(output.token_ids) for output in result.outputs
    ]


def test_several_sequences(fake: FakeService) -> None:
    """n sequences come back apart, by index."""
    with Client(fake.address) as client:
        result = client.generate("hello", sampling=SamplingOptions(n=3, seed=1))
    assert [fake.output(1, index=index) for index in range(3)] == [
        bytes(output.token_ids) for output in result.outputs
    ]


def test_former_stream_still_running_is_aborted(fake: FakeService, failure: type[Failure]) -> None:
    """If the service still holds the broken stream, it is aborted and the resume tried again."""
    fake.failures = [
        failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9),
        failure(code=grpc.StatusCode.ALREADY_EXISTS),
    ]
    with Client(fake.address, retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(seed=5), request_id="mine")
    assert fake.output(5) == bytes(token.id for token in result.tokens)
    assert fake.aborted == ["mine"]


def test_running_request_id_is_an_error(fake: FakeService, failure: type[Failure]) -> None:
    """A first call whose id is taken is refused, and nobody's request is aborted."""
    fake.failures = [failure(code=grpc.StatusCode.ALREADY_EXISTS)]
    with Client(fake.address, retry=QUICK) as client, pytest.raises(AlreadyRunning):
        client.generate("hello", request_id="theirs")
    assert fake.aborted == []


def test_overload_without_advice_is_reported(fake: FakeService, failure: type[Failure]) -> None:
    """Waiting is for those who are told that it helps."""
    fake.failures = [failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED)]
    with Client(fake.address) as client, pytest.raises(Overloaded) as caught:
        client.generate("hello")
    assert caught.value.retry_after_s is None
    assert len(fake.requests) == 1


def test_overload_during_a_resume_is_waited_out(fake: FakeService, failure: type[Failure]) -> None:
    """A stream that was admitted once waits for room as advised."""
    fake.failures = [
        failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9),
        failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_s=0.05),
    ]
    with Client(fake.address, retry=QUICK) as client:
        result = client.generate("hello", sampling=SamplingOptions(seed=5))
    assert fake.output(5) == bytes(token.id for token in result.tokens)


def test_field_is_named(fake: FakeService, failure: type[Failure]) -> None:
    """The service's refusal names the field."""
    fake.failures = [failure(code=grpc.StatusCode.OUT_OF_RANGE, field="sampling.top_p")]
    with Client(fake.address) as client, pytest.raises(InvalidRequest) as caught:
        client.generate("hello")
    assert caught.value.field == "sampling.top_p"
    assert caught.value.code is grpc.StatusCode.OUT_OF_RANGE


def test_unknown_model(fake: FakeService) -> None:
    """An unknown model is NotFound."""
    with Client(fake.address) as client, pytest.raises(NotFound):
        client.generate("hello", model="none")


def test_nobody_listens(closed_port: str) -> None:
    """A refused connection is an error at once, after few tries."""
    with Client(closed_port, retry=QUICK) as client:
        with pytest.raises(Unavailable):
            client.generate("hello")
        with pytest.raises(Unavailable):
            client.status()


def test_mute_peer_is_bounded_by_the_connect_timeout(mute_port: str) -> None:
    """A peer that accepts and stays silent counts as refused after the connect timeout."""
    started_s = time.monotonic()
    client = Client(mute_port, connect_timeout_s=0.3, retry=NO_RETRY)
    with client, pytest.raises(Unavailable):
        client.generate("hello")
    assert time.monotonic() - started_s < 10


def test_short_calls_go_on_to_the_next_address(closed_port: str, fake: FakeService) -> None:
    """A dead first address does not hinder."""
    with Client(f"{closed_port},{fake.address}", retry=QUICK) as client:
        assert client.status().actors[0].name == "fake"
        assert client.generate("hello").text


def test_a_silent_address_leaves_time_for_the_next(mute_port: str, fake: FakeService) -> None:
    """Whose host is gone, for instance: a short call is over before an attempt to connect is."""
    with Client([mute_port, fake.address], connect_timeout_s=100.0) as client:
        assert client.status(timeout_s=10.0).version == "0.0.fake"
    with Client(mute_port, connect_timeout_s=100.0) as client, pytest.raises(DeadlineExceeded):
        client.status(timeout_s=0.2)


def test_short_calls(fake: FakeService) -> None:
    """Models, tokens, health, abort and status."""
    with Client(fake.address) as client:
        (model,) = client.models()
        assert (model.name, model.vocab_size, model.drafters[0].method) == (
            "demo",
            256,
            "autoregressive",
        )
        assert model.verifiers == (Verifier.COUPLED, Verifier.MCSD_WITH_REPLACEMENT)
        ids = client.tokenize("größe")
        assert tuple("größe".encode()) == ids
        assert client.detokenize(ids) == "größe"
        assert client.tokenize(messages=[Message("user", "ab")]) == (97, 98)
        assert client.health() is Health.SERVING
        assert client.health("draining") is Health.NOT_SERVING
        assert client.health("nothing") is Health.SERVICE_UNKNOWN
        assert client.abort("running")
        assert not client.abort("gone")
        status = client.status()
    assert (status.version, status.running, status.waiting, status.finished) == (
        "0.0.fake",
        1,
        2,
        3,
    )
    assert status.actors[0].busy == 0.25
