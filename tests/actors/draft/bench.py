"""A target in miniature and a draft worker, driven step by step, with frames through their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from tests.actors.draft.trees.plain_tree import paths_of

from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.state.draft_events import (
    Attached,
    AttachRefused,
    AttachSession,
    CandidatesSent,
    Ended,
    Report,
    Resynced,
    ResyncWanted,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.drafter import Drafter
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, random_table
from outrider.actors.exchange import candidates, verdicts
from outrider.actors.exchange.verdicts import TargetActivity, Verdicts
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.ragged import starts_of

VOCAB_SIZE = 24

TARGET_TABLE = random_table(VOCAB_SIZE, 2, seed=1, concentration=0.1)
"""The target's distributions: peaked, as a language model's, and dependent on two tokens."""

CHEAP = 1e6
"""Bytes for a token that keep nothing back."""


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
    round_trip_s: float = 0.0,
) -> AttachSession:
    """The event that attaches a session."""
    return AttachSession(
        key=SessionKey(link, handle),
        tokens=tuple(tokens),
        prompt_length=len(tokens) if prompt_length is None else prompt_length,
        sampling=sampling
        or Sampling(seed=2**63 + 11, max_tokens=max_tokens, temperature=temperature),
        speculation=speculation or Speculation(),
        round_trip_s=round_trip_s,
    )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One session's part of a frame."""

    handle: int
    epoch: int
    length: int
    hash: int
    tokens: tuple[int, ...]
    credits: int
    starving: bool = False
    seen: int = 0
    roots: tuple[int, ...] = ()


def frame_of(
    entries: Sequence[Verdict],
    *,
    link: int = 1,
    target: TargetActivity | None = None,
    echo_us: int = 0,
) -> VerdictsReceived:
    """Verdicts of one pass, as they arrive."""
    sizes = np.array([len(entry.tokens) for entry in entries])
    root_sizes = np.array([len(entry.roots) for entry in entries])
    made = Verdicts(
        target=target or TargetActivity(),
        handles_E=np.array([entry.handle for entry in entries], np.uint64),
        epochs_E=np.array([entry.epoch for entry in entries]),
        lengths_E=np.array([entry.length for entry in entries]),
        hashes_E=np.array([entry.hash for entry in entries], np.uint64),
        credits_E=np.array([entry.credits for entry in entries]),
        seen_E=np.array([entry.seen for entry in entries]),
        starving_E=np.array([entry.starving for entry in entries]),
        starts_E=starts_of(sizes),
        tokens_T=np.array([t for entry in entries for t in entry.tokens], np.int64),
        root_starts_E=starts_of(root_sizes),
        roots_T=np.array([t for entry in entries for t in entry.roots], np.int64),
        echo_us=echo_us,
    )
    return VerdictsReceived(link=link, verdicts=verdicts.decode(verdicts.encode(made)))


class MiniTarget:
    """The truth of one session: draws tokens from a table with the shared noise, and issues verdicts."""

    def __init__(self, table: Table, attach: AttachSession) -> None:
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

    def decide(
        self, count: int, *, starving: bool = False, seen: int = 2**31, roots: tuple[int, ...] = ()
    ) -> Verdict:
        """Commits the next draws; `seen` is the last message of candidates that was taken in before."""
        for _ in range(count):
            self.tokens.append(self.draw(self.tokens))
        self.epoch += 1
        return Verdict(
            handle=self.key.handle,
            epoch=self.epoch,
            length=self.length,
            hash=self.hash_at(self.length),
            tokens=tuple(self.tokens[self.length - count :]),
            credits=self.credits,
            starving=starving,
            seen=seen,
            roots=roots,
        )

    def commit(
        self,
        count: int,
        *,
        starving: bool = False,
        seen: int = 2**31,
        roots: tuple[int, ...] = (),
        target: TargetActivity | None = None,
    ) -> VerdictsReceived:
        """A frame with this verdict alone."""
        verdict = self.decide(count, starving=starving, seen=seen, roots=roots)
        return frame_of([verdict], link=self.key.link, target=target)

    def resync(self, length: int) -> Resynced:
        """The answer to a request for the tokens after the first `length`."""
        return Resynced(
            key=self.key,
            epoch=self.epoch,
            length=self.length,
            hash=self.hash_at(self.length),
            tokens=tuple(self.tokens[length:]),
            credits=self.credits,
        )


@dataclass(frozen=True, kw_only=True)
class News:
    """One session's part of a frame of candidates."""

    handle: int
    length: int
    hash: int
    number: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    """-1 for a child of the base."""
    estimates: tuple[float, ...]

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """Tokens from the base to each node."""
        return paths_of(self.tokens, self.parents)


def news_of(frame: CandidatesSent) -> list[News]:
    """The entries of a frame, as they arrive."""
    if frame.candidates is None:
        return []
    arrived = candidates.decode(candidates.encode(frame.candidates), 1 << 32)
    return [
        News(
            handle=int(arrived.handles_E[entry]),
            length=int(arrived.lengths_E[entry]),
            hash=int(arrived.hashes_E[entry]),
            number=int(arrived.numbers_E[entry]),
            tokens=tuple(arrived.tokens_N[start:end].tolist()),
            parents=tuple(arrived.parents_N[start:end].tolist()),
            estimates=tuple((arrived.estimates_N[start:end] / 255.0).tolist()),
        )
        for entry, (start, end) in enumerate(
            zip(arrived.starts_E.tolist(), arrived.starts_E[1:].tolist(), strict=False)
        )
    ]


@dataclass(frozen=True, kw_only=True)
class View:
    """A session's tree, node by node; -1 is the root."""

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    values: list[float]
    estimates: list[float]
    scratch: list[int]
    sent: list[int]

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """Tokens from the root to each node."""
        return paths_of(self.tokens, self.parents)

    @property
    def num_run(self) -> int:
        """Nodes that are run."""
        return sum(row >= 0 for row in self.scratch)

    def children(self, node: int) -> list[int]:
        """Children of a node."""
        return [child for child, parent in enumerate(self.parents) if parent == node]


def view(sessions: DraftSessions, row: int) -> View:
    """The tree of a row."""
    forest = sessions.forest
    cells = slice(1, 1 + int(forest.num_nodes_S[row]))
    return View(
        tokens=forest.tokens_SM[row, cells].tolist(),
        parents=(forest.parents_SM[row, cells] - 1).tolist(),
        depths=forest.depths_SM[row, cells].tolist(),
        values=forest.values_SM[row, cells].tolist(),
        estimates=forest.estimates_SM[row, cells].tolist(),
        scratch=forest.scratch_SM[row, cells].tolist(),
        sent=forest.sent_SM[row, cells].tolist(),
    )


class Bench:
    """A worker with what it reported."""

    def __init__(
        self,
        sessions: DraftSessions,
        drafter: Drafter,
        *,
        max_ahead: int = 64,
        bytes_per_token: float = CHEAP,
        lockstep: bool = False,
    ) -> None:
        self.reports: list[Report] = []
        self.now = 0.0
        self.sessions = sessions
        core = DraftCore(
            sessions,
            drafter,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
        )
        self.worker = DraftWorker(core, emit=self.reports.append, clock=lambda: self.now)

    def settle(self, steps: int = 500) -> None:
        """Works until there is nothing to do."""
        for _ in range(steps):
            self.now += 0.001
            if not self.worker.run_once():
                return
        raise AssertionError(f"the worker is still busy after {steps} steps")

    def step(self, count: int = 1) -> None:
        """Does some units of work."""
        for _ in range(count):
            self.now += 0.001
            self.worker.run_once()

    def row(self, key: SessionKey) -> int:
        """Row of a session."""
        session = self.sessions.find(key)
        assert session is not None, "it is not attached"
        return session.row

    def tree(self, key: SessionKey) -> View:
        """A session's tree."""
        return view(self.sessions, self.row(key))

    def text(self, key: SessionKey) -> list[int]:
        """A session's text."""
        tokens: list[int] = self.sessions.text(self.row(key)).tolist()
        return tokens

    def num_sent(self, key: SessionKey) -> int:
        """Nodes of a session that were sent."""
        return sum(number > 0 for number in self.tree(key).sent)

    def take(self) -> list[Report]:
        """Reports since the last call."""
        reports = self.reports[:]
        self.reports.clear()
        return reports

    def take_news(self) -> list[News]:
        """Candidates since the last call; other reports are dropped."""
        frames = [report for report in self.take() if isinstance(report, CandidatesSent)]
        return [news for frame in frames for news in news_of(frame)]

    def take_asked(self) -> list[ResyncWanted]:
        """Requests since the last call; other reports are dropped."""
        return [report for report in self.take() if isinstance(report, ResyncWanted)]

    def take_refused(self) -> list[AttachRefused]:
        """Refusals since the last call; other reports are dropped."""
        return [report for report in self.take() if isinstance(report, AttachRefused)]

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
        prefill_chunk: int = 32,
        max_ahead: int = 64,
        bytes_per_token: float = CHEAP,
        lockstep: bool = False,
    ) -> None:
        settings = EngineSettings(
            model="table", num_slots=num_slots, max_context=max_context, max_scratch=max_scratch
        )
        self.engine = TabularEngine(table, settings)
        sessions = DraftSessions(num_slots, num_nodes_of(width, max_ahead, lockstep=lockstep))
        self.model_drafter = AutoregressiveDrafter(
            sessions,
            self.engine,
            width=width,
            max_ahead=max_ahead,
            prefill_chunk=prefill_chunk,
            lockstep=lockstep,
        )
        super().__init__(
            sessions,
            self.model_drafter,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
        )

    def slot(self, key: SessionKey) -> int:
        """The engine's slot of a session."""
        return int(self.model_drafter.models.slots_S[self.row(key)])

    def is_expanded(self, key: SessionKey) -> bool:
        """Whether the root of a session was run."""
        return bool(self.model_drafter.models.is_expanded_S[self.row(key)])
