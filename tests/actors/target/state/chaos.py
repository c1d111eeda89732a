"""A target worker driven step by step, and drafters that behave as badly as a network and a bad model can."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Engine, Logits, Rows
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, random_table
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.ragged import starts_of
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    CommitFrame,
    Committed,
    DrafterJoined,
    Failed,
    Finished,
    Opened,
    OpenSession,
    Output,
    Resync,
    SessionOwner,
    VerdictsSent,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker

VOCAB = 6


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one drafter was told of one session."""

    drafter: str
    handle: int
    epoch: int
    base_length: int
    base_hash: int
    tokens: tuple[int, ...]
    credits: int
    starving: bool
    seen: int
    roots: tuple[int, ...]
    pass_s: float
    wait_s: float
    free_s: float


def verdicts_of(output: VerdictsSent) -> list[Verdict]:
    """The sessions of a frame."""
    told = output.verdicts
    return [
        Verdict(
            drafter=output.drafter,
            handle=int(told.handles_E[e]),
            epoch=int(told.epochs_E[e]),
            base_length=int(told.lengths_E[e]),
            base_hash=int(told.hashes_E[e]),
            tokens=tuple(told.tokens_T[told.starts_E[e] : told.starts_E[e + 1]].tolist()),
            credits=int(told.credits_E[e]),
            starving=bool(told.starving_E[e]),
            seen=int(told.seen_E[e]),
            roots=tuple(told.roots_T[told.root_starts_E[e] : told.root_starts_E[e + 1]].tolist()),
            pass_s=told.target.pass_s,
            wait_s=told.target.wait_s,
            free_s=told.target.free_s,
        )
        for e in range(len(told.handles_E))
    ]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What a coordinator was told of one session."""

    owner: SessionOwner
    epoch: int
    tokens: tuple[int, ...]
    origins: tuple[int, ...]


def commits_of(outputs: Sequence[Output]) -> list[Commit]:
    """What coordinators were told of tokens, in order."""
    found: list[Commit] = []
    for output in outputs:
        if isinstance(output, Committed):
            found.append(
                Commit(
                    owner=output.owner,
                    epoch=output.epoch,
                    tokens=output.tokens,
                    origins=output.origins,
                )
            )
        elif isinstance(output, CommitFrame):
            told = output.commits
            found.extend(
                Commit(
                    owner=SessionOwner(stream=output.stream, session=int(told.sessions_E[e])),
                    epoch=int(told.epochs_E[e]),
                    tokens=tuple(told.tokens_T[told.starts_E[e] : told.starts_E[e + 1]].tolist()),
                    origins=tuple(told.origins_T[told.starts_E[e] : told.starts_E[e + 1]].tolist()),
                )
                for e in range(len(told.sessions_E))
            )
    return found


@dataclass
class Harness:
    """A worker with a list for its outputs and a clock that stands still."""

    engine: Engine
    lockstep: bool = False
    is_meddled_with: bool = False
    """Candidates in `during` arrive while a pass runs."""
    device_draws: Literal["auto", "on"] = "auto"
    """`on`: draws as on a GPU."""
    prefill_chunk: int = 16
    now: float = 0.0
    outputs: list[Output] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = TargetSettings(
            name="t",
            incarnation=1,
            model_name="m",
            engine=EngineSettings(model="tabular:x"),
            prefill_chunk=self.prefill_chunk,
            lockstep=self.lockstep,
            # By this clock a round takes ten times what a pass was timed at.
            adaptive=False,
            device_draws=self.device_draws,
        )
        self.during: list[CandidatesReceived] = []
        """Arrive while the next pass runs."""
        self.worker = TargetWorker(
            self.engine,
            settings,
            self.outputs.extend,
            self.clock,
            new_handle=itertools.count(1).__next__,
        )
        if self.is_meddled_with:
            forward = self.engine.forward

            def beside(batch: Sequence[Rows]) -> Logits:
                arrived, self.during = self.during, []
                for message in arrived:
                    self.worker.post(message)
                return forward(batch)

            setattr(self.engine, "forward", beside)  # noqa: B010 - a method of this one instance

    def clock(self) -> float:
        """Each look takes a hundred microseconds."""
        self.now += 1e-4
        return self.now

    def committed(self, session: int) -> list[int]:
        """Tokens committed so far in one session."""
        return [
            token
            for one in commits_of(self.outputs)
            if one.owner.session == session
            for token in one.tokens
        ]

    def end(self, session: int) -> Finished | Failed | None:
        """How a session ended, None while it runs."""
        for output in self.outputs:
            if isinstance(output, Finished | Failed) and output.owner.session == session:
                return output
        return None

    def opened(self) -> set[int]:
        """Sessions that were opened."""
        return {o.owner.session for o in self.outputs if isinstance(o, Opened)}

    def handle(self, session: int) -> int:
        """The target's number of a session."""
        return next(
            o.handle for o in self.outputs if isinstance(o, Opened) and o.owner.session == session
        )


def engine(
    seed: int = 1,
    *,
    slots: int = 4,
    eos: tuple[int, ...] = (),
    order: int = 2,
    max_scratch: int = 64,
) -> Engine:
    """A random table model."""
    table: Table = random_table(VOCAB, order, seed=seed, concentration=0.7, eos_token_ids=eos)
    settings = EngineSettings(
        model="tabular:x", num_slots=slots, max_scratch=max_scratch, max_context=512
    )
    return TabularEngine(table, settings)


def opening(
    session: int,
    sampling: Sampling,
    *,
    prompt: Sequence[int] = (1, 2, 3),
    committed: Sequence[int] = (),
    speculation: Speculation | None = None,
    drafters: tuple[str, ...] = ("d",),
    group: int = 0,
) -> OpenSession:
    """An open event."""
    return OpenSession(
        owner=SessionOwner(stream=1, session=session),
        group=group,
        prompt=prompt,
        committed=committed,
        sampling=sampling,
        speculation=speculation or Speculation(),
        drafters={name: place for place, name in enumerate(drafters)},
    )


def random_tree(rng: random.Random, size: int) -> tuple[list[int], list[int], bytes]:
    """Tokens, wire parents and estimates of a random tree with distinct siblings."""
    tokens: list[int] = []
    parents: list[int] = []
    taken: set[tuple[int, int]] = set()
    while len(tokens) < size:
        parent, token = rng.randint(0, len(tokens)), rng.randrange(VOCAB)
        if (parent, token) not in taken:
            taken.add((parent, token))
            parents.append(parent)
            tokens.append(token)
    return tokens, parents, bytes(rng.randrange(1, 256) for _ in tokens)


def candidates(
    text: Sequence[int],
    tree: tuple[list[int], list[int], bytes],
    *,
    handle: int,
    drafter: str = "d",
    number: int = 0,
) -> CandidatesReceived:
    """A candidate message for a tree below a text."""
    tokens, parents, estimates = tree
    found = Candidates(
        handles_E=np.array([handle], np.uint64),
        lengths_E=np.array([len(text)], np.int64),
        hashes_E=np.array([base_hash.extend_all(base_hash.EMPTY, text)], np.uint64),
        numbers_E=np.array([number], np.int64),
        starts_E=starts_of(np.array([len(tokens)])),
        tokens_N=np.array(tokens, np.int64),
        parents_N=np.array(parents, np.int64) - 1,
        estimates_N=np.frombuffer(estimates or b"\x80" * len(tokens), np.uint8),
        num_bytes=len(tokens) * 4,
    )
    return CandidatesReceived(drafter=drafter, candidates=found)


def run_plain(harness: Harness, events: Sequence[OpenSession]) -> dict[int, list[int]]:
    """Runs sessions to their ends without any drafter."""
    for event in events:
        harness.worker.post(event)
    sessions = [event.owner.session for event in events]
    for _ in range(10_000):
        if all(harness.end(s) for s in sessions):
            break
        harness.worker.step()
    return {s: harness.committed(s) for s in sessions}


def run_chaos(
    harness: Harness,
    events: Sequence[OpenSession],
    rng: random.Random,
    drafters: Sequence[str] = ("d",),
) -> dict[int, list[int]]:
    """Runs sessions while drafters send random trees: fresh, stale, repeated, delayed, reordered, or lost."""
    for drafter in drafters:
        harness.worker.post(DrafterJoined(drafter=drafter))
    for event in events:
        harness.worker.post(event)
    sessions = {event.owner.session: list(event.prompt) for event in events}
    prefix = {e.owner.session: [*e.prompt, *e.committed] for e in events}
    delayed: list[CandidatesReceived] = []
    for _ in range(10_000):
        if all(harness.end(s) for s in sessions):
            break
        for session in sessions:
            if harness.end(session) or session not in harness.opened():
                continue
            text = prefix[session] + harness.committed(session)
            cut = len(text) - rng.choice([0, 0, 0, 1, 2])
            tree = random_tree(rng, rng.randint(1, 20))
            message = candidates(
                text[: max(cut, 1)],
                tree,
                handle=harness.handle(session),
                drafter=rng.choice(list(drafters)),
            )
            delayed.extend([message] * rng.choice([0, 1, 1, 1, 2]))
        rng.shuffle(delayed)
        for _ in range(rng.randint(0, len(delayed))):
            if harness.is_meddled_with and rng.random() < 0.5:
                harness.during.append(delayed.pop())
            else:
                harness.worker.post(delayed.pop())
        wait_s = harness.worker.step()
        harness.now += wait_s or 0.0
    return {s: harness.committed(s) for s in sessions}


def verdicts(harness: Harness, drafter: str) -> list[Verdict | Resync]:
    """What a drafter was told, in order."""
    told: list[Verdict | Resync] = []
    for output in harness.outputs:
        if isinstance(output, VerdictsSent) and output.drafter == drafter:
            told.extend(verdicts_of(output))
        elif isinstance(output, Resync) and output.drafter == drafter:
            told.append(output)
    return told
