"""Load, outages and failures that pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest
from tests.client.batch.lines import completion, read, write

from outrider.client import (
    Admission,
    AsyncClient,
    Completion,
    FinishReason,
    Generation,
    InvalidRequest,
    ModelExchanged,
    Output,
    Overloaded,
    RetryPolicy,
    Unauthorized,
    Unavailable,
)
from outrider.client.batch.answers_file import LocalOutput
from outrider.client.batch.batch_job import Job
from outrider.client.batch.batch_run import BatchRun, RunSettings
from outrider.client.batch.places import read_lines
from outrider.client.batch.survey import survey
from outrider.client.batch.whole_batch import Watcher, look_through, run_job

if TYPE_CHECKING:
    from tests.client.conftest import Failure, FakeService

SHORT = RetryPolicy(initial_backoff_s=0.001, max_backoff_s=0.01, open_attempts=1)


@contextmanager
def writing(file: Path) -> Iterator[LocalOutput]:
    """An output that has begun."""
    output = LocalOutput(file)
    try:
        assert list(output.answers()) == []
        output.begin()
        yield output
    finally:
        output.close()


async def run(
    folder: Path, address: str, *, count: int = 6, **settings: Any
) -> list[dict[str, Any]]:
    """Runs some records. Returns the lines of the output."""
    source = str(write(folder / "in.jsonl", *(completion(f"r{n}") for n in range(count))))
    found = survey(read_lines(source))
    fingerprints = settings.pop("fingerprints", {})
    bounds: dict[str, Any] = {"concurrency": 3, **settings}
    with writing(folder / "out.jsonl") as output:
        async with AsyncClient(address, retry=SHORT) as client:
            batch = BatchRun(
                client,
                output,
                settings=RunSettings(**bounds),
                fingerprints=fingerprints,
                backoff=SHORT,
            )
            await batch.run(found.entries(read_lines(source)))
    return read(folder / "out.jsonl")


def errors(lines: list[dict[str, Any]]) -> list[str]:
    """The codes of those that failed."""
    return [line["error"]["code"] for line in lines if line["error"]]


async def test_refusals_for_load_are_waited_out(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """However many there are: no record fails for them."""
    fake.failures = [
        failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_s=0.001) for _ in range(40)
    ]
    lines = await run(tmp_path, fake.address)
    assert errors(lines) == []
    assert len(lines) == 6


async def test_a_service_that_stays_full_ends_the_run(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """Without an answer to any record, so that a later run can go on."""
    fake.failures = [failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED) for _ in range(1000)]
    with pytest.raises(Overloaded):
        await run(tmp_path, fake.address, patience_s=0.05)
    assert read(tmp_path / "out.jsonl") == []


async def test_failures_that_pass_are_tried_again(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """A failed pass, a broken stream, a timeout: the answer is as if nothing had been."""
    fake.failures = [
        failure(code=grpc.StatusCode.INTERNAL),
        failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=3),
        failure(code=grpc.StatusCode.DEADLINE_EXCEEDED),
    ]
    lines = await run(tmp_path, fake.address)
    assert errors(lines) == []
    assert len(lines) == 6


async def test_a_record_that_fails_each_time_is_answered_so(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """After as many tries as it may have; the others are answered."""
    fake.failures = [failure(code=grpc.StatusCode.INTERNAL, details="broken") for _ in range(4)]
    lines = await run(tmp_path, fake.address, count=2, concurrency=1, attempts=4)
    assert errors(lines) == ["service_error"]
    assert lines[0]["response"]["status_code"] == 500
    assert lines[0]["error"]["message"] == "broken"
    assert len(fake.requests) == 5


async def test_an_outage_ends_the_run_and_no_record(fake: FakeService, tmp_path: Path) -> None:
    """A later run goes on with them."""
    fake.kill()
    with pytest.raises(Unavailable):
        await run(tmp_path, fake.address, patience_s=0.05)
    assert read(tmp_path / "out.jsonl") == []


async def test_an_outage_amid_a_stream_ends_the_run(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """After the patience of the run, however long a request may take."""
    job = Job(
        source=str(write(tmp_path / "in.jsonl", completion("a"))),
        destination=str(tmp_path / "out.jsonl"),
        address=fake.address,
        timeout_s=3600.0,
        patience_s=0.1,
    )
    away = grpc.StatusCode.UNAVAILABLE
    fake.failures = [failure(code=away, after_tokens=3), *[failure(code=away)] * 1000]
    running = asyncio.to_thread(run_job, job, look_through(job), watcher=Watcher())
    with pytest.raises(Unavailable):
        await asyncio.wait_for(running, 60)
    assert read(tmp_path / "out.jsonl") == []


async def test_missing_credentials_end_the_run(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """They are missing for every record."""
    fake.failures = [failure(code=grpc.StatusCode.UNAUTHENTICATED)]
    with pytest.raises(Unauthorized):
        await run(tmp_path, fake.address, concurrency=1)
    assert read(tmp_path / "out.jsonl") == []


async def test_a_token_that_is_gone_ends_the_run(fake: FakeService, tmp_path: Path) -> None:
    """No record is answered for it: a later run goes on with them."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    source = str(write(tmp_path / "in.jsonl", completion("a"), completion("b")))
    found = survey(read_lines(source))
    with writing(tmp_path / "out.jsonl") as output:
        async with AsyncClient(fake.address, token=token, retry=SHORT) as client:
            settings = RunSettings(concurrency=1)
            token.write_text("")
            with pytest.raises(Unauthorized, match="token"):
                await BatchRun(client, output, settings=settings, fingerprints={}).run(
                    found.entries(read_lines(source))
                )
    assert read(tmp_path / "out.jsonl") == []


async def test_an_exchange_of_the_model_ends_the_run(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """Records that were answered stay, those in the middle and after have no answer: no text, and no output, is of two models."""
    fingerprints = {"demo": "f00d"}
    cut = failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9)
    fake.failures = [cut]
    lines = await run(tmp_path, fake.address, count=2, fingerprints=fingerprints)
    assert len(lines) == 2
    assert {one["response"]["body"]["system_fingerprint"] for one in lines} == {"f00d"}

    (tmp_path / "later").mkdir()
    fake.failures, fake.requests = [cut], []
    fake.model_fingerprint, former = "beef", fake.model_fingerprint
    with pytest.raises(ModelExchanged, match="exchanged while the batch ran"):
        await run(tmp_path / "later", fake.address, concurrency=1, fingerprints=fingerprints)
    assert read(tmp_path / "later" / "out.jsonl") == []
    assert [request.model_fingerprint for request in fake.requests] == [former]


def test_an_input_that_loses_lines_is_told(fake: FakeService, tmp_path: Path) -> None:
    """Records that were looked through and never came again are no success; those that came are answered."""
    source = write(tmp_path / "in.jsonl", completion("a"), completion("b"), completion("c"))
    job = Job(source=str(source), destination=str(tmp_path / "out.jsonl"), address=fake.address)
    found = look_through(job)
    write(source, completion("a"))
    with pytest.raises(InvalidRequest, match="2 records have no answer"):
        run_job(job, found, watcher=Watcher())
    assert [line["custom_id"] for line in read(tmp_path / "out.jsonl")] == ["a"]


def test_a_model_that_is_not_served_is_refused(fake: FakeService, tmp_path: Path) -> None:
    """Before any record fails for it, which would count as done. One that is away for now is none of these."""
    source = write(tmp_path / "in.jsonl", completion("a"))
    out = tmp_path / "out.jsonl"
    job = Job(source=str(source), destination=str(out), address=fake.address, model="dmeo")
    with pytest.raises(InvalidRequest, match="--model: model 'dmeo' is not served here"):
        run_job(job, look_through(job), watcher=Watcher())
    assert not out.exists()
    assert not fake.requests
    fake.away = ("dmeo",)
    run_job(job, look_through(job), watcher=Watcher())
    assert [line["custom_id"] for line in read(out)] == ["a"]


class Counting:
    """A client that counts how many ask at once."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    async def generate(self, prompt: str, **arguments: Any) -> Generation:
        """Answers after some turns of the loop."""
        self.now += 1
        self.peak = max(self.peak, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1
        output = Output(
            index=0,
            text="yes",
            tokens=(),
            completion=Completion(index=0, finish_reason=FinishReason.STOP_TOKEN, stop="0"),
        )
        admission = Admission(request_id="r", model="demo", seed=1, prompt_tokens=1)
        return Generation(admission=admission, outputs=(output,))


async def test_as_many_at_once_as_asked_for(tmp_path: Path) -> None:
    """And no more."""
    source = str(write(tmp_path / "in.jsonl", *(completion(f"r{n}") for n in range(20))))
    found = survey(read_lines(source))
    client = Counting()
    with writing(tmp_path / "out.jsonl") as output:
        settings = RunSettings(concurrency=3)
        batch = BatchRun(cast(AsyncClient, client), output, settings=settings, fingerprints={})
        await batch.run(found.entries(read_lines(source)))
    assert client.peak == 3
    choices = [line["response"]["body"]["choices"][0] for line in read(tmp_path / "out.jsonl")]
    assert len(choices) == 20
    assert choices[0]["finish_reason"] == "stop"
    assert choices[0]["stop_reason"] is None
