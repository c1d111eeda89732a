"""Sends the records of a batch through a service and writes each answer once.

Refusals for load and outages are waited out; they end the run, not a record, so that a later run goes on. What fails for a
record alone becomes its answer. All answers are of the models that were served when the run began: if one is exchanged, the run ends,
and records that it was in the middle of have no answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from outrider.client.async_client import AsyncClient
from outrider.client.batch import answer as answers
from outrider.client.batch.answers_file import AnswersFile
from outrider.client.batch.record import BatchRecord, Entry, Rejection
from outrider.client.connection.errors import (
    AlreadyRunning,
    Cancelled,
    DeadlineExceeded,
    ModelExchanged,
    OutriderError,
    Overloaded,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from outrider.client.connection.retry import RetryPolicy
from outrider.client.messages.request_options import SpeculationOptions
from outrider.client.messages.results import FinishReason, Generation

BACKOFF = RetryPolicy(initial_backoff_s=0.5, max_backoff_s=15.0)
"""Waits between two tries of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Bounds of a run."""

    concurrency: int
    """Records at once."""

    attempts: int = 3
    """Tries of a record that fails for a cause that may pass."""

    patience_s: float = 600.0
    """Seconds without a single answer, through refusals and outages, after which the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One answer that was written."""

    is_ok: bool
    tokens: int


class BatchRun:
    """One run over the records that are not done yet."""

    def __init__(
        self,
        client: AsyncClient,
        output: AnswersFile,
        *,
        settings: RunSettings,
        fingerprints: Mapping[str, str],
        on_written: Callable[[Written], None] = lambda written: None,
        backoff: RetryPolicy = BACKOFF,
    ) -> None:
        """Args:
        client: What to send through.
        output: Where answers go; it has begun.
        settings: Bounds.
        fingerprints: Of the models, by name, the service's first one first. Nothing else answers.
        on_written: Is told of each answer.
        backoff: Waits between two tries of a record.
        """
        self._client = client
        self._output = output
        self._settings = settings
        self._fingerprints = fingerprints
        self._on_written = on_written
        self._backoff = backoff
        self._num_answers = 0
        self._last_answer_s = time.monotonic()

    async def run(self, entries: Iterator[Entry]) -> None:
        """Answers each entry.

        Raises:
            OutriderError: The run cannot go on; what was written stays.
        """
        self._last_answer_s = time.monotonic()
        syncing = asyncio.create_task(self._sync())
        workers = [
            asyncio.create_task(self._work(entries)) for _ in range(self._settings.concurrency)
        ]
        try:
            left = {syncing, *workers}
            while left - {syncing}:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (syncing, *workers):
                task.cancel()
            await asyncio.gather(syncing, *workers, return_exceptions=True)

    async def _sync(self) -> None:
        """Keeps what was written safe, until it is cancelled."""
        while True:
            await asyncio.sleep(self._output.sync_every_s)
            await asyncio.to_thread(self._output.sync)

    async def _work(self, entries: Iterator[Entry]) -> None:
        """Answers entries, one after the other."""
        for entry in entries:
            if isinstance(entry, Rejection):
                self._write(answers.rejection(entry), is_ok=False, tokens=0)
                await asyncio.sleep(0)  # a file of faulty lines keeps nobody else from working
            else:
                await self._answer(entry)

    async def _answer(self, record: BatchRecord) -> None:
        """Sends a record until there is an answer, and writes it."""
        failures = tries = 0
        num_answers = self._num_answers
        while True:
            try:
                generation = await ask(
                    self._client, record, model_fingerprint=self._fingerprint_of(record)
                )
            except Unauthorized:
                raise
            except ModelExchanged as exchange:
                raise ModelExchanged(
                    "the model was exchanged while the batch ran; all answers so far are of the former one. Serve that again and "
                    f"run the same command, or take another output ({exchange.message})",
                    code=exchange.code,
                    request_id=exchange.request_id,
                ) from exchange
            except (Overloaded, Unavailable) as problem:
                error: OutriderError = problem
                if time.monotonic() - self._last_answer_s > self._settings.patience_s:
                    raise
                # Others are answered, and this one breaks the connection again: it may well be its own fault.
                if isinstance(error, Unavailable) and self._num_answers > num_answers:
                    failures += 1
            except (ServiceError, DeadlineExceeded, Cancelled, AlreadyRunning) as problem:
                error = problem
                failures += 1
            except OutriderError as refusal:
                self._write(answers.failure(record, refusal), is_ok=False, tokens=0)
                return
            else:
                self._write_success(record, generation)
                return
            if failures >= self._settings.attempts:
                self._write(answers.failure(record, error), is_ok=False, tokens=0)
                return
            tries += 1
            num_answers = self._num_answers
            delay_s = self._backoff.delay_s(tries, num_addresses=1, jitter=random.random())
            await asyncio.sleep(max(delay_s, error.retry_after_s or 0.0))

    def _fingerprint_of(self, record: BatchRecord) -> str:
        """Of the model that must answer; empty if the service does not know it, and will say so."""
        if record.model:
            return self._fingerprints.get(record.model, "")
        return next(iter(self._fingerprints.values()), "")

    def _write_success(self, record: BatchRecord, generation: Generation) -> None:
        line = answers.success(record, generation, created=int(time.time()))
        tokens = sum(output.completion.usage.completion_tokens for output in generation.outputs)
        self._write(line, is_ok=True, tokens=tokens)

    def _write(self, line: bytes, *, is_ok: bool, tokens: int) -> None:
        self._output.append(line)
        self._num_answers += 1
        self._last_answer_s = time.monotonic()
        self._on_written(Written(is_ok=is_ok, tokens=tokens))


async def ask(
    client: AsyncClient, record: BatchRecord, *, model_fingerprint: str = "", is_plain: bool = False
) -> Generation:
    """Sends a record once.

    Args:
        client: What to send through.
        record: What to ask.
        model_fingerprint: Of the model that must answer; empty takes any.
        is_plain: Decodes without speculation, whatever the record says.

    Raises:
        OutriderError: By cause; `Cancelled` also if somebody aborted the request.
    """
    generation = await client.generate(
        record.prompt,
        tokens=record.tokens,
        messages=record.messages,
        model=record.model,
        model_fingerprint=model_fingerprint,
        sampling=record.sampling,
        speculation=SpeculationOptions(enabled=False) if is_plain else record.speculation,
    )
    for output in generation.outputs:
        if output.completion.finish_reason is FinishReason.ABORTED:
            raise Cancelled(
                "the request was aborted at the service", request_id=generation.admission.request_id
            )
    return generation
