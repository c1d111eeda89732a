"""A whole batch: look through the input, go on where the output ends, run, sum up."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from types import ModuleType

from outrider.client.async_client import AsyncClient
from outrider.client.batch.answers_file import AnswersFile, LocalOutput
from outrider.client.batch.baseline import Baseline, measure_baseline, sample
from outrider.client.batch.batch_job import Job
from outrider.client.batch.batch_run import BatchRun, RunSettings, Written
from outrider.client.batch.batch_summary import BatchSummary, summarise
from outrider.client.batch.parts import PartsOutput
from outrider.client.batch.places import check_files, is_remote, local_path, read_lines
from outrider.client.batch.record import Rejection
from outrider.client.batch.survey import Survey, done_ids, strictly, survey
from outrider.client.connection import event_loop
from outrider.client.connection.errors import InvalidRequest, NotFound, OutriderError
from outrider.client.messages.wire_values import put
from outrider.v1 import generation_pb2

MAX_CONCURRENCY = 256
"""Most records at once that are chosen without being asked for."""

DEFAULT_CONCURRENCY = 8
"""Records at once where the service does not say how many it can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What was done."""

    records: int
    done_before: int
    """Records that earlier runs had answered."""

    concurrency: int
    wall_s: float
    """Seconds of this run."""

    tokens: int
    """Output tokens of this run."""

    summary: BatchSummary
    """Of the whole output."""

    baseline: Baseline | None

    emulated: str = ""
    """As `Status.emulated`."""

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens a second, of this run; None if it had nothing to do."""
        return self.tokens / self.wall_s if self.tokens else None

    @property
    def is_ok(self) -> bool:
        """True if every record succeeded, and plain decoding said the same wherever it was asked."""
        differs = self.baseline is not None and bool(self.baseline.different)
        return not self.summary.total.failed and not differs

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "records": self.records,
            "done_before": self.done_before,
            "concurrency": self.concurrency,
            "emulated": self.emulated,
            "wall_s": self.wall_s,
            "tokens": self.tokens,
            "tokens_per_s": self.tokens_per_s,
            "total": self.summary.total.as_dict(),
            "categories": {
                name: tally.as_dict() for name, tally in self.summary.by_category.items()
            },
            "baseline": self.baseline.as_dict() if self.baseline is not None else None,
        }


class Watcher:
    """Is told how a batch goes. This one does not care."""

    def begin(self, *, total: int, done: int) -> None:
        """Work begins: of `total` records `done` are answered already."""

    def wrote(self, written: Written) -> None:
        """One more is answered."""


def look_through(job: Job) -> Survey:
    """Reads the whole input, before anybody is asked.

    Raises:
        InvalidRequest: It cannot be read, holds no record, `strict` refuses it, or the model's name or a file of the job cannot be used.
    """
    put(generation_pb2.GenerateRequest(), "model", job.model, "--model")
    check_files(job.source, job.destination, job.summary)
    found = survey(read_lines(job.source), model=job.model)
    if job.strict:
        strictly(found)
    if job.shards:
        _ray_data().connect()
    return found


def run_job(job: Job, found: Survey, *, watcher: Watcher) -> BatchReport:
    """Answers every record that is not answered yet.

    Args:
        job: What to do.
        found: What `look_through` has found.
        watcher: Is told how it goes.

    Raises:
        OutriderError: The run cannot begin, or cannot go on; what was written stays, and the same job goes on with it.
    """
    fingerprints, capacity, emulated = event_loop.run(_ask_service(job))
    settings = RunSettings(
        concurrency=job.concurrency or capacity, attempts=job.attempts, patience_s=job.patience_s
    )
    tokens = 0

    def count(written: Written) -> None:
        nonlocal tokens
        tokens += written.tokens
        watcher.wrote(written)

    output = _open(job)
    try:
        done = done_ids(found, output.answers(), fingerprints=fingerprints)
        output.begin()
        watcher.begin(total=len(found.line_by_id), done=len(done))
        began_s = time.perf_counter()
        left = (e for e in found.entries(read_lines(job.source)) if e.id not in done)
        if job.shards:
            left = (entry for entry in left if isinstance(entry, Rejection))

        async def run() -> None:
            async with job.client() as client:
                await BatchRun(
                    client, output, settings=settings, fingerprints=fingerprints, on_written=count
                ).run(left)

        event_loop.run(run())
        if job.shards:
            output.sync()
            wanted = set(found.id_by_custom.values()) - done
            _ray_data().run_shards(job, wanted, settings, fingerprints, count)
        wall_s = time.perf_counter() - began_s
        output.finish()
        summary = summarise(output.answers())
        missing = len(found.line_by_id) - summary.total.ok - summary.total.failed
        if missing:
            raise InvalidRequest(
                f"{missing} records have no answer: the input has lost lines while it was run"
            )
        return BatchReport(
            records=len(found.line_by_id),
            done_before=len(done),
            concurrency=settings.concurrency,
            wall_s=wall_s,
            tokens=tokens,
            summary=summary,
            baseline=_baseline(job, found, output, concurrency=settings.concurrency),
            emulated=emulated,
        )
    finally:
        output.close()


def _open(job: Job) -> AnswersFile:
    """The output, where it lies."""
    if job.shards or is_remote(job.destination):
        return PartsOutput(job.destination)
    path = local_path(job.destination)
    if path.with_name(f"{path.name}.parts").exists():
        raise InvalidRequest(f"a run with --shards has left {path}.parts; let such a run finish it")
    return LocalOutput(path)


def _ray_data() -> ModuleType:
    """What needs Ray.

    Raises:
        InvalidRequest: It is not installed.
    """
    try:
        return importlib.import_module("outrider.client.batch.ray_data")
    except ImportError as error:
        raise InvalidRequest(
            f"--shards needs more than is installed ({error}); pip install 'outrider[serve,batch]'"
        ) from None


async def _ask_service(job: Job) -> tuple[dict[str, str], int, str]:
    """The fingerprint of each model, how many sequences the targets hold at once, and the profiles of emulated devices."""
    async with job.client() as client:
        fingerprints = {model.name: model.model_fingerprint for model in await client.models()}
        if job.model and job.model not in fingerprints:
            await _check_model(client, job.model)
        status = await client.status()
    held = sum(actor.capacity for actor in status.actors if actor.role == "target")
    return fingerprints, min(held, MAX_CONCURRENCY) or DEFAULT_CONCURRENCY, status.emulated


async def _check_model(client: AsyncClient, model: str) -> None:
    """Refuses `--model` where the service knows none of that name: every record would fail, and count as done. One whose targets are
    away is not among the models either, but known.

    Raises:
        InvalidRequest: There is no such model.
    """
    try:
        await client.tokenize("a", model=model)
    except NotFound as error:
        raise InvalidRequest(f"--model: {error.message}", field="model") from None
    except OutriderError:
        pass  # of the text or of an outage; records are told of those


def _baseline(job: Job, found: Survey, output: AnswersFile, *, concurrency: int) -> Baseline | None:
    """Compares a sample with plain decoding; None if that was not asked for, or no record can be compared."""
    if not job.baseline:
        return None
    succeeded = {answer.id for answer in output.answers() if answer.error_code is None}
    records = sample(found.entries(read_lines(job.source)), succeeded, job.baseline)
    if not records:
        return None
    chosen = {record.id for record in records}
    answers = {answer.id: answer for answer in output.answers() if answer.id in chosen}

    async def measure() -> Baseline:
        async with job.client() as client:
            return await measure_baseline(client, records, answers, concurrency=concurrency)

    return event_loop.run(measure())
