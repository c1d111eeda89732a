"""The former target worker behind the interface of the core: a bridge that goes when the core is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.actors.engine.protocol import Batch, Logits, Rows
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.commits import Commits
from outrider.actors.exchange.frames import starts_of
from outrider.actors.exchange.verdicts import Target, Verdicts
from outrider.actors.target import events as target_events
from outrider.actors.target.settings import TargetSettings
from outrider.actors.target.worker import TargetWorker
from outrider.cluster.simulate.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFrame:
    drafter: str
    candidates: Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFrame:
    drafter: str
    verdicts: Verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFrame:
    stream: int
    commits: Commits


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    batch: Batch
    late: list[Any]
    seconds: float


Computed = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    seconds: float | None


class _Stepping:
    """An engine whose passes move its own clock."""

    def __init__(self, engine: Device) -> None:
        self._engine = engine
        self.now = 0.0
        self.took_s = 0.0
        self.rows: list[Rows] = []
        self.on_pass: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def clock(self) -> float:
        return self.now

    def forward(self, batch: Sequence[Rows]) -> Logits:
        before = self._engine.pass_s
        logits = self._engine.forward(batch)
        self.on_pass()
        self.now += self._engine.pass_s - before
        self.took_s += self._engine.pass_s - before
        self.rows.extend(batch)
        return logits


class TargetCore:
    def __init__(
        self, engine: Device, settings: TargetSettings, *, new_handle: Callable[[], int]
    ) -> None:
        self._outputs: list[Any] = []
        self._device = engine
        self._engine = _Stepping(engine)
        self._worker = TargetWorker(
            self._engine,  # type: ignore[arg-type]
            settings,
            self._outputs.extend,
            self._engine.clock,
            new_handle=new_handle,
        )

    def warm_up(self, clock: Callable[[], float]) -> None:
        self._worker.warm_up()

    def take(self, event: Any, now: float, arrived: float | None = None) -> None:
        self._engine.now = now if arrived is None else arrived
        if not isinstance(event, CandidateFrame):
            self._worker.post(event)
            return
        one = event.candidates
        for e, handle in enumerate(one.handles_E.tolist()):
            nodes = slice(int(one.starts_E[e]), int(one.starts_E[e + 1]))
            self._worker.post(
                target_events.Candidates(
                    drafter=event.drafter,
                    handle=handle,
                    base_length=int(one.lengths_E[e]),
                    base_hash=int(one.hashes_E[e]),
                    tokens=one.tokens_N[nodes].tolist(),
                    parents=(one.parents_N[nodes] + 1).tolist(),
                    estimates=one.estimates_N[nodes].tobytes(),
                    num_bytes=one.num_bytes // len(one.handles_E),
                    number=int(one.numbers_E[e]),
                )
            )

    def begin(self, now: float) -> Pass | Wait:
        engine = self._engine
        engine.now, engine.took_s, engine.rows = now, 0.0, []
        split: list[int] = []
        engine.on_pass = lambda: split.append(len(self._outputs)) if not split else None
        wait_s = self._worker.step()
        if not engine.rows:
            return Wait(seconds=wait_s)
        late = self._outputs[split[0] :]
        del self._outputs[split[0] :]
        self._device.pass_s -= engine.took_s
        return Pass(batch=Batch.of(engine.rows), late=late, seconds=engine.took_s)

    def run(self, pass_: Pass) -> None:
        self._device.pass_s += pass_.seconds

    def finish(self, pass_: Pass, computed: Any, now: float) -> None:
        self._outputs.extend(pass_.late)

    def tidy(self) -> None:
        pass

    def booked(self, pass_: Pass, *, model_s: float, now: float) -> None:
        pass

    def take_outputs(self) -> list[Any]:
        """Outputs, verdicts and commits as frames."""
        outputs, self._outputs[:] = self._outputs[:], []
        verdicts: dict[str, list[target_events.Verdict]] = {}
        commits: dict[int, list[target_events.Committed]] = {}
        others: list[Any] = []
        for output in outputs:
            match output:
                case target_events.Verdict():
                    verdicts.setdefault(output.drafter, []).append(output)
                case target_events.Committed():
                    commits.setdefault(output.owner.stream, []).append(output)
                case _:
                    others.append(output)
        opened = [o for o in others if isinstance(o, target_events.Opened)]
        rest = [o for o in others if not isinstance(o, target_events.Opened)]
        return [
            *(VerdictFrame(drafter=d, verdicts=_verdicts(v)) for d, v in verdicts.items()),
            *opened,
            *(CommitFrame(stream=s, commits=_commits(c)) for s, c in commits.items()),
            *rest,
        ]


def _verdicts(entries: list[target_events.Verdict]) -> Verdicts:
    first = entries[0]
    return Verdicts(
        target=Target(pass_s=first.pass_s, wait_s=max(v.wait_s for v in entries)),
        handles_E=np.array([v.handle for v in entries], np.uint64),
        epochs_E=np.array([v.epoch for v in entries], np.int64),
        lengths_E=np.array([v.base_length for v in entries], np.int64),
        hashes_E=np.array([v.base_hash for v in entries], np.uint64),
        credits_E=np.array([v.credits for v in entries], np.int64),
        seen_E=np.array([v.seen for v in entries], np.int64),
        starving_E=np.array([v.starving for v in entries], np.bool_),
        starts_E=starts_of(np.array([len(v.tokens) for v in entries])),
        tokens_T=np.array([t for v in entries for t in v.tokens], np.int64),
        root_starts_E=starts_of(np.array([len(v.roots) for v in entries])),
        roots_T=np.array([t for v in entries for t in v.roots], np.int64),
    )


def _commits(entries: list[target_events.Committed]) -> Commits:
    return Commits(
        sessions_E=np.array([c.owner.session for c in entries], np.uint64),
        epochs_E=np.array([c.epoch for c in entries], np.int64),
        starts_E=starts_of(np.array([len(c.tokens) for c in entries])),
        tokens_T=np.array([t for c in entries for t in c.tokens], np.int64),
        origins_T=np.array([o for c in entries for o in c.origins], np.int64),
    )
