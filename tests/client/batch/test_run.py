"""Load, outages and failures that pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.client.batch.lines import completion, read, write

from outrider.client import AsyncClient, Overloaded, RetryPolicy, Unauthorized, Unavailable
from outrider.client.batch.output import LocalOutput
from outrider.client.batch.run import BatchRun, RunSettings
from outrider.client.batch.source import read_lines
from outrider.client.batch.survey import survey

if TYPE_CHECKING:
    from tests.client.conftest import FakeService, Failure

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
    bounds: dict[str, Any] = {"concurrency": 3, **settings}
    with writing(folder / "out.jsonl") as output:
        async with AsyncClient(address, retry=SHORT) as client:
            batch = BatchRun(
                client, output, settings=RunSettings(**bounds), fingerprints={}, backoff=SHORT
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
    """What was answered before stays."""
    fake.stall_from = 4
    fake.kill()
    with pytest.raises(Unavailable):
        await run(tmp_path, fake.address, patience_s=0.05)
    assert read(tmp_path / "out.jsonl") == []


async def test_missing_credentials_end_the_run(
    fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """They are missing for every record."""
    fake.failures = [failure(code=grpc.StatusCode.UNAUTHENTICATED)]
    with pytest.raises(Unauthorized):
        await run(tmp_path, fake.address, concurrency=1)
    assert read(tmp_path / "out.jsonl") == []


async def test_no_more_at_once_than_asked_for(fake: FakeService, tmp_path: Path) -> None:
    """The service sees so many requests, and the next when one of them has ended."""
    fake.stall_from = 2
    with pytest.raises(TimeoutError):
        import asyncio

        async with asyncio.timeout(1.0):
            await run(tmp_path, fake.address, count=20, concurrency=3)
    assert len(fake.requests) == 2 + 3
