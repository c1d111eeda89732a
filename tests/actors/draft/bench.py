"""A target in miniature and a draft worker, driven step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from outrider.actors.draft.autoregressive import AutoregressiveDrafter
from outrider.actors.draft.drafter import Drafter
from outrider.actors.draft.events import (
    Attach,
    Attached,
    Drafted,
    Ended,
    Refused,
    Report,
    Resync,
    ResyncWanted,
    SessionKey,
    SessionNews,
    Verdict,
)
from outrider.actors.draft.settings import BYTES_PER_TOKEN
from outrider.actors.draft.worker import DraftWorker
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.engine.tabular import Table, TabularEngine, random_table
from outrider.actors.speculation import base_hash
from outrider.actors.speculation.noise import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation

VOCAB_SIZE = 24

TARGET_TABLE = random_table(VOCAB_SIZE, 2, seed=1, concentration=0.1)
"""The target's distributions: peaked, as a language model's, and dependent on two tokens."""


def draft_table() -> Table:
    """A drafter's distributions: like the target's, with errors."""
    other = random_table(VOCAB_SIZE, 2, seed=2, concentration=0.3)
    mixed = 0.7 * TARGET_TABLE.log_probs + 0.3 * other.log_probs
    mixed = mixed - torch.logsumexp(torch.from_numpy(mixed), -1, keepdim=True).numpy()
    return replace(TARGET_TABLE, log_probs=mixed, name="draft table")


DRAFT_TABLE = draft_table()


def make_attach(
    *,
    handle: int = 7,
    link: int = 1,
    tokens: Sequence[int] = (1, 2, 3, 4, 5),
    prompt_length: int | None = None,
    sampling: Sampling | None = None,
    speculation: Speculation | None = None,
    temperature: float = 0.8,
    max_tokens: int = 400,
) -> Attach:
    """The event that attaches a session."""
    return Attach(
        key=SessionKey(link, handle),
        tokens=tuple(tokens),
        prompt_length=len(tokens) if prompt_length is None else prompt_length,
        sampling=sampling
        or Sampling(seed=2**63 + 11, max_tokens=max_tokens, temperature=temperature),
        speculation=speculation or Speculation(),
    )


class MiniTarget:
    """The truth of one session: draws tokens from a table with the shared noise, and issues verdicts."""

    def __init__(self, table: Table, attach: Attach) -> None:
        self.table = table
        self.key = attach.key
        self.tokens = list(attach.tokens)
        self.sampling = attach.sampling
        self.epoch = 0
        self.credits = 64
        self._noise = GumbelNoise(table.vocab_size, torch.device("cpu"))

    @property
    def length(self) -> int:
        return len(self.tokens)

    def hash_at(self, length: int) -> int:
        return base_hash.extend_all(base_hash.EMPTY, self.tokens[:length])

    def draw(self, tokens: Sequence[int]) -> int:
        """The target's token after a text."""
        scores_V = torch.from_numpy(self.table.log_probs_after(tokens)).to(torch.float32)
        if self.sampling.temperature > 0.0:
            noise_1V = self._noise.rows(self.sampling.seed, len(tokens), 1)
            scores_V = scores_V / self.sampling.temperature + noise_1V[0]
        return int(scores_V.argmax())

    def commit(self, count: int, *, starving: bool = False, seen: int = 2**31) -> Verdict:
        """Commits the next draws; `seen` is the last message of candidates that was taken in before."""
        fresh = []
        for _ in range(count):
            fresh.append(self.draw(self.tokens))
            self.tokens.append(fresh[-1])
        self.epoch += 1
        return Verdict(
            key=self.key,
            epoch=self.epoch,
            length=self.length,
            hash=self.hash_at(self.length),
            tokens=tuple(fresh),
            credits=self.credits,
            starving=starving,
            seen=seen,
        )

    def resync(self, length: int) -> Resync:
        """The answer to a request for the tokens after the first `length`."""
        return Resync(
            key=self.key,
            epoch=self.epoch,
            length=self.length,
            hash=self.hash_at(self.length),
            tokens=tuple(self.tokens[length:]),
            credits=self.credits,
        )


class Bench:
    """A worker with what it reported."""

    def __init__(
        self,
        drafter: Drafter,
        *,
        max_ahead: int = 64,
        bytes_per_token: float = BYTES_PER_TOKEN,
        lockstep: bool = False,
    ) -> None:
        self.reports: list[Report] = []
        self.now = 0.0
        self.worker = DraftWorker(
            drafter,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
            emit=self.reports.append,
            clock=lambda: self.now,
        )

    def settle(self, steps: int = 500) -> None:
        """Works until there is nothing to do."""
        for _ in range(steps):
            self.now += 0.001
            if not self.worker.run_once(self.now):
                return
        raise AssertionError(f"the worker is still busy after {steps} steps")

    def step(self, count: int = 1) -> None:
        """Does some units of work."""
        for _ in range(count):
            self.now += 0.001
            self.worker.run_once(self.now)

    def take(self) -> list[Report]:
        """Reports since the last call."""
        reports = self.reports[:]
        self.reports.clear()
        return reports

    def take_news(self) -> list[SessionNews]:
        """Candidates since the last call; other reports are dropped."""
        return [e for report in self.take() if isinstance(report, Drafted) for e in report.entries]

    def take_asked(self) -> list[ResyncWanted]:
        """Requests since the last call; other reports are dropped."""
        return [report for report in self.take() if isinstance(report, ResyncWanted)]

    def take_refused(self) -> list[Refused]:
        """Refusals since the last call; other reports are dropped."""
        return [report for report in self.take() if isinstance(report, Refused)]

    def take_ended(self) -> list[Ended]:
        """Ends since the last call; other reports are dropped."""
        return [report for report in self.take() if isinstance(report, Ended)]

    def take_attached(self) -> list[Attached]:
        """Attachments since the last call; other reports are dropped."""
        return [report for report in self.take() if isinstance(report, Attached)]


class TableBench(Bench):
    """A worker that drafts with a table."""

    def __init__(
        self,
        table: Table,
        *,
        num_slots: int = 4,
        max_context: int = 600,
        max_scratch: int = 96,
        width: int = 4,
        expand: int = 4,
        prefill_chunk: int = 32,
        max_ahead: int = 64,
        bytes_per_token: float = BYTES_PER_TOKEN,
        lockstep: bool = False,
    ) -> None:
        settings = EngineSettings(
            model="table", num_slots=num_slots, max_context=max_context, max_scratch=max_scratch
        )
        self.engine = TabularEngine(table, settings)
        self.model_drafter = AutoregressiveDrafter(
            self.engine,
            width=width,
            expand=expand,
            max_ahead=max_ahead,
            prefill_chunk=prefill_chunk,
            lockstep=lockstep,
        )
        super().__init__(
            self.model_drafter,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
        )
