"""The state of a stream over its connections."""

from __future__ import annotations

import pytest

from outrider.client.errors import Cancelled, ServiceError, Unavailable
from outrider.client.progress import StreamProgress, new_request_id
from outrider.client.retry import RetryPolicy
from outrider.v1 import generation_pb2, sampling_pb2


def started(*, n: int = 1, seed: int = 7, policy: RetryPolicy | None = None) -> StreamProgress:
    """A stream that has been admitted."""
    request = generation_pb2.GenerateRequest(
        request_id="r", text="hi", sampling=sampling_pb2.SamplingOptions(n=n)
    )
    progress = StreamProgress(
        request, policy=policy or RetryPolicy(), num_addresses=1, owns_id=True
    )
    assert progress.accept(admission(seed=seed)) is not None
    return progress


def admission(*, seed: int = 7, model: str = "m") -> generation_pb2.GenerateResponse:
    """An admission."""
    return generation_pb2.GenerateResponse(
        admission=generation_pb2.Admission(request_id="r", model=model, seed=seed)
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
    progress = StreamProgress(request, policy=RetryPolicy(), num_addresses=1, owns_id=True)
    with pytest.raises(ServiceError, match="admission"):
        progress.accept(chunk(1))


def test_end_without_completion_is_an_error() -> None:
    """A stream that just stops is not taken for a whole one."""
    with pytest.raises(ServiceError, match="0 of 2"):
        started(n=2).end()


def test_progress_renews_the_bounds() -> None:
    """Failures count in a row; each new token starts the count afresh."""
    progress = started(policy=RetryPolicy(resume_attempts=1))
    for step in range(10):
        progress.accept(chunk(step))
        progress.retry(Unavailable("cut"), now_s=100.0 * step, jitter=0.0)
    with pytest.raises(Unavailable):
        progress.retry(Unavailable("cut"), now_s=1000.0, jitter=0.0)
    assert progress.resumes == 10
    assert progress.token_ids == tuple(range(10))


def test_outage_is_bounded_in_time() -> None:
    """However many tries are left, a long outage ends the stream."""
    progress = started(policy=RetryPolicy(outage_s=5.0))
    progress.retry(Unavailable("cut"), now_s=50.0, jitter=0.0)
    progress.retry(Unavailable("cut"), now_s=55.0, jitter=0.0)
    with pytest.raises(Unavailable):
        progress.retry(Unavailable("cut"), now_s=55.1, jitter=0.0)


def test_a_call_cancelled_by_the_other_side_is_a_break() -> None:
    """A server that is torn down may cancel its calls instead of just vanishing."""
    retry = started().retry(Cancelled("gone"), now_s=0.0, jitter=0.0)
    assert not retry.abort_first


def test_faults_of_the_service_are_not_retried() -> None:
    """Only breaks are; an internal error would come again."""
    with pytest.raises(ServiceError) as caught:
        started().retry(ServiceError("bug"), now_s=0.0, jitter=0.0)
    assert caught.value.request_id == "r"


def test_resume_continues_a_given_resume() -> None:
    """Tokens the caller brought along come before those received since."""
    request = generation_pb2.GenerateRequest(
        request_id="r", resume=generation_pb2.TokenIds(ids=[1, 2])
    )
    progress = StreamProgress(request, policy=RetryPolicy(), num_addresses=1, owns_id=True)
    progress.accept(admission())
    progress.accept(chunk(3))
    assert list(progress.next_request().resume.ids) == [1, 2, 3]


def test_request_ids_are_valid() -> None:
    """Fresh names keep to the contract's characters."""
    name = new_request_id()
    assert len(name) <= 128
    assert name.replace("-", "").isalnum()
