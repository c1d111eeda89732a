"""The state of a stream over its connections."""

from __future__ import annotations

import pytest

from outrider.client.connection.errors import (
    Cancelled,
    ModelExchanged,
    OutriderError,
    Overloaded,
    ServiceError,
    Unavailable,
)
from outrider.client.connection.retry import RetryPolicy
from outrider.client.messages.stream_progress import Retry, StreamProgress, new_request_id
from outrider.v1 import generation_pb2, sampling_pb2


def started(*, n: int = 1, seed: int = 7, policy: RetryPolicy | None = None) -> StreamProgress:
    """A stream that has been admitted."""
    request = generation_pb2.GenerateRequest(
        request_id="r", text="hi", sampling=sampling_pb2.SamplingOptions(n=n)
    )
    progress = StreamProgress(
        request, policy=policy or RetryPolicy(), addresses=("a",), owns_id=True
    )
    assert progress.accept(admission(seed=seed)) is not None
    return progress


def admission(
    *, seed: int = 7, model: str = "m", fingerprint: str = ""
) -> generation_pb2.GenerateResponse:
    """An admission."""
    return generation_pb2.GenerateResponse(
        admission=generation_pb2.Admission(
            request_id="r", model=model, seed=seed, model_fingerprint=fingerprint
        )
    )


def chunk(*ids: int) -> generation_pb2.GenerateResponse:
    """A chunk of these tokens."""
    return generation_pb2.GenerateResponse(
        chunk=generation_pb2.Chunk(tokens=[generation_pb2.Token(id=id) for id in ids])
    )


def test_second_admission_is_not_handed_out() -> None:
    """The caller sees one admission, however often the stream is reopened."""
    assert started().accept(admission()) is None


@pytest.mark.parametrize("other", [admission(seed=8), admission(model="other")])
def test_other_generation_is_refused(other: generation_pb2.GenerateResponse) -> None:
    """A resume that would go on with another seed or model would be another text."""
    with pytest.raises(ServiceError, match="same models"):
        started().accept(other)


def test_output_before_the_admission_is_refused() -> None:
    """Without a seed nothing could be resumed."""
    request = generation_pb2.GenerateRequest(request_id="r")
    progress = StreamProgress(request, policy=RetryPolicy(), addresses=("a",), owns_id=True)
    with pytest.raises(ServiceError, match="admission"):
        progress.accept(chunk(1))


def test_end_without_completion_is_an_error() -> None:
    """A stream that just stops is not taken for a whole one."""
    with pytest.raises(ServiceError, match="0 of 2"):
        started(n=2).end()


def retried(
    progress: StreamProgress,
    error: OutriderError,
    *,
    address: str = "a",
    now_s: float = 0.0,
    left_s: float = 1e6,
) -> Retry:
    """What it decides, without jitter."""
    return progress.retry(error, address=address, now_s=now_s, left_s=left_s, jitter=0.0)


def test_several_sequences_are_asked_for_anew_by_who_asked() -> None:
    """Tokens of several cannot be brought along; the error tells how to get the same texts."""
    progress = started(n=2)
    progress.accept(chunk(4))
    with pytest.raises(Unavailable, match=r"cut; .*n > 1.* ask again with seed 7 ") as caught:
        retried(progress, Unavailable("cut"))
    assert caught.value.request_id == "r"


def test_progress_renews_the_patience() -> None:
    """The outage begins with the first failure in a row; each new token ends it."""
    progress = started(policy=RetryPolicy(patience_s=5.0))
    for step in range(10):
        progress.accept(chunk(step))
        retried(progress, Unavailable("cut"), now_s=100.0 * step)
    with pytest.raises(Unavailable):
        retried(progress, Unavailable("cut"), now_s=1000.0)
    assert progress.resumes == 10
    assert progress.token_ids == tuple(range(10))


def test_outage_is_bounded_in_time() -> None:
    """However often it was tried, only the patience ends an outage."""
    progress = started(policy=RetryPolicy(patience_s=500.0))
    for step in range(500):
        retried(progress, Unavailable("cut"), now_s=50.0 + step)
    with pytest.raises(Unavailable) as caught:
        retried(progress, Unavailable("cut"), now_s=550.0)
    assert caught.value.__notes__ == ["gave up after 501 failures in 500.0 s"]


def test_a_try_beyond_the_deadline_is_not_waited_for() -> None:
    """The caller learns at once what went wrong, not after a wait that cannot help."""
    with pytest.raises(Unavailable):
        retried(started(), Unavailable("draining", retry_after_s=3.0), left_s=3.0)
    assert retried(started(), Unavailable("draining", retry_after_s=3.0), left_s=3.1).delay_s == 3.0


def test_full_service_is_waited_for_until_the_patience_ends() -> None:
    """A refusal with advice is a matter of time, one without it is final; both before the admission."""
    request = generation_pb2.GenerateRequest(request_id="r", text="hi")
    policy = RetryPolicy(patience_s=60.0)
    progress = StreamProgress(request, policy=policy, addresses=("a",), owns_id=True)
    for second in range(60):
        full = Overloaded("full", retry_after_s=1.0)
        assert retried(progress, full, now_s=float(second)).delay_s >= 1.0
    # Who has been answered knows that there is a service, and so waits for it, too.
    retried(progress, Unavailable("gone"), now_s=59.9)
    with pytest.raises(Overloaded):
        retried(progress, Overloaded("full", retry_after_s=1.0), now_s=60.0)
    fresh = StreamProgress(request, policy=policy, addresses=("a",), owns_id=True)
    with pytest.raises(Overloaded):
        retried(fresh, Overloaded("full"))
    assert progress.resumes == 0


def test_a_call_cancelled_by_the_other_side_is_a_break() -> None:
    """A server that is torn down may cancel its calls instead of just vanishing."""
    retry = retried(started(), Cancelled("gone"))
    assert not retry.abort_first


def test_faults_of_the_service_are_not_retried() -> None:
    """Only breaks are; an internal error would come again."""
    with pytest.raises(ServiceError) as caught:
        retried(started(), ServiceError("bug"))
    assert caught.value.request_id == "r"


def test_resume_continues_a_given_resume() -> None:
    """Tokens the caller brought along come before those received since."""
    request = generation_pb2.GenerateRequest(
        request_id="r", resume=generation_pb2.TokenIds(ids=[1, 2])
    )
    progress = StreamProgress(request, policy=RetryPolicy(), addresses=("a",), owns_id=True)
    progress.accept(admission())
    progress.accept(chunk(3))
    assert list(progress.next_request().resume.ids) == [1, 2, 3]


def two_addresses() -> StreamProgress:
    """A stream with five tokens of a model, and two addresses to go on at."""
    request = generation_pb2.GenerateRequest(request_id="r", text="hi")
    policy = RetryPolicy(open_attempts=2)
    progress = StreamProgress(request, policy=policy, addresses=("a", "b"), owns_id=True)
    progress.accept(admission(fingerprint="f"))
    progress.accept(chunk(*range(5)))
    return progress


def test_a_resume_is_pinned_to_the_model() -> None:
    """It tells whose tokens it brings."""
    assert two_addresses().next_request().model_fingerprint == "f"


def test_an_exchanged_model_is_left_alone_and_others_are_tried() -> None:
    """Each address once; at the end the error says how far the text had come."""
    progress = two_addresses()
    refusal = ModelExchanged("it is another one", field="model_fingerprint")
    assert retried(progress, Unavailable("cut")) is not None
    assert retried(progress, refusal).delay_s == 0.0
    assert progress.refused == {"a"}
    with pytest.raises(
        ModelExchanged, match=r"5 tokens were received of 'm'.*another one"
    ) as caught:
        retried(progress, refusal, address="b")
    assert caught.value.received_tokens == tuple(range(5))
    assert caught.value.request_id == "r"


def test_who_does_not_answer_is_not_waited_for_once_the_model_was_exchanged() -> None:
    """The tries of a first connection, and not the patience of a stream that broke."""
    progress = two_addresses()
    retried(progress, ModelExchanged("it is another one"))
    retried(progress, Unavailable("nobody"), address="b")
    with pytest.raises(ModelExchanged, match="5 tokens"):
        retried(progress, Unavailable("nobody"), address="b")


def test_another_model_that_takes_the_resume_is_refused() -> None:
    """A service that does not know of fingerprints would go on with another text."""
    with pytest.raises(ModelExchanged, match="5 tokens"):
        two_addresses().accept(admission(fingerprint="g"))


def test_request_ids_are_valid() -> None:
    """Fresh names keep to the contract's characters."""
    name = new_request_id()
    assert len(name) <= 128
    assert name.replace("-", "").isalnum()
