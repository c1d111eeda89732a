"""The former workers behind the interface of cores: a bridge that goes when the cores are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.actors.draft import events as draft_events
from outrider.actors.draft.autoregressive import AutoregressiveDrafter
from outrider.actors.draft.by_verifier import DrafterByVerifier
from outrider.actors.draft.sampled import SampledDrafter
from outrider.actors.draft.settings import DraftSettings
from outrider.actors.draft.worker import DraftWorker
from outrider.actors.engine.emulated import EmulatedEngine
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.commits import Commits
from outrider.actors.exchange.frames import starts_of
from outrider.actors.exchange.verdicts import Target, Verdicts
from outrider.actors.target import events as target_events
from outrider.actors.target.settings import TargetSettings
from outrider.actors.target.worker import TargetWorker


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
class LinkVerdicts:
    link: int
    verdicts: Verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCandidates:
    link: int
    candidates: Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    batch: Sequence[Rows]
    seconds: float
    late: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    seconds: float | None


class _Stepping:
    """An engine whose passes move its own clock."""

    def __init__(self, engine: EmulatedEngine) -> None:
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
        seconds = self._engine.seconds_of(batch)
        logits = self._engine.compute(batch)
        self.on_pass()
        self.now += seconds
        self.took_s += seconds
        self.rows.extend(batch)
        return logits


class TargetCore:
    def __init__(
        self, engine: EmulatedEngine, settings: TargetSettings, new_handle: Callable[[], int]
    ) -> None:
        self._outputs: list[Any] = []
        self._engine = _Stepping(engine)
        self._worker = TargetWorker(
            self._engine,  # type: ignore[arg-type]
            settings,
            self._outputs.extend,
            self._engine.clock,
            new_handle=new_handle,
        )

    def warm_up(self) -> None:
        self._worker.warm_up()

    def take(self, event: Any, now: float) -> None:
        self._engine.now = now
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
        return Pass(batch=engine.rows, seconds=engine.took_s, late=late)

    def finish(self, pass_: Pass, now: float) -> None:
        self._outputs.extend(pass_.late)

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


class DraftCore:
    def __init__(
        self,
        engine: EmulatedEngine,
        settings: DraftSettings,
        new_generator: Callable[[], np.random.Generator],
    ) -> None:
        self._reports: list[Any] = []
        self._engine = stepping = _Stepping(engine)
        slots = PrefixSlots(stepping)  # type: ignore[arg-type]
        coupled = AutoregressiveDrafter(
            stepping,  # type: ignore[arg-type]
            width=settings.width,
            expand=settings.expand,
            max_ahead=settings.max_ahead,
            prefill_chunk=settings.prefill_chunk,
            lockstep=settings.lockstep,
            slots=slots,
        )
        sampled = SampledDrafter(
            stepping,  # type: ignore[arg-type]
            prefill_chunk=settings.prefill_chunk,
            lockstep=settings.lockstep,
            new_generator=new_generator,
            slots=slots,
        )
        self._worker = DraftWorker(
            DrafterByVerifier(coupled=coupled, sampled=sampled),
            max_ahead=settings.max_ahead,
            bytes_per_token=settings.bytes_per_token,
            emit=self._reports.append,
            lockstep=settings.lockstep,
            clock=stepping.clock,
        )
        self._has_news = False

    def take(self, event: Any, now: float) -> None:
        self._has_news = True
        if not isinstance(event, LinkVerdicts):
            self._worker.post(event)
            return
        v = event.verdicts
        for e, handle in enumerate(v.handles_E.tolist()):
            tokens = slice(int(v.starts_E[e]), int(v.starts_E[e + 1]))
            roots = slice(int(v.root_starts_E[e]), int(v.root_starts_E[e + 1]))
            self._worker.post(
                draft_events.Verdict(
                    key=draft_events.SessionKey(event.link, handle),
                    epoch=int(v.epochs_E[e]),
                    length=int(v.lengths_E[e]),
                    hash=int(v.hashes_E[e]),
                    tokens=tuple(v.tokens_T[tokens].tolist()),
                    credits=int(v.credits_E[e]),
                    starving=bool(v.starving_E[e]),
                    pass_s=v.target.pass_s,
                    roots=tuple(v.roots_T[roots].tolist()),
                    seen=int(v.seen_E[e]),
                    wait_s=v.target.wait_s,
                )
            )

    def begin(self, now: float) -> Pass | None:
        engine = self._engine
        for _ in range(2):
            engine.now, engine.took_s, engine.rows = now, 0.0, []
            split: list[int] = []
            engine.on_pass = lambda: split.append(len(self._reports)) if not split else None  # noqa: B023
            self._worker.run_once(now)
            if engine.rows:
                late = self._reports[split[0] :]
                del self._reports[split[0] :]
                return Pass(batch=engine.rows, seconds=engine.took_s, late=late)
        return None

    def finish(self, pass_: Pass, now: float) -> None:
        self._reports.extend(pass_.late)

    def due_s(self, now: float) -> float | None:
        return None

    def take_reports(self, now: float) -> list[Any]:
        reports, self._reports[:] = self._reports[:], []
        by_link: dict[int, list[draft_events.SessionNews]] = {}
        rest: list[Any] = []
        for report in reports:
            if isinstance(report, draft_events.Drafted):
                by_link.setdefault(report.link, []).extend(report.entries)
            else:
                rest.append(report)
        return [*rest, *(LinkCandidates(link=k, candidates=_news(e)) for k, e in by_link.items())]


def _news(entries: list[draft_events.SessionNews]) -> Candidates:
    return Candidates(
        handles_E=np.array([e.handle for e in entries], np.uint64),
        lengths_E=np.array([e.length for e in entries], np.int64),
        hashes_E=np.array([e.hash for e in entries], np.uint64),
        numbers_E=np.array([e.number for e in entries], np.int64),
        starts_E=starts_of(np.array([len(e.tree.tokens) for e in entries])),
        tokens_N=np.array([t for e in entries for t in e.tree.tokens], np.int64),
        parents_N=np.array([p - 1 for e in entries for p in e.tree.parents], np.int64),
        estimates_N=np.frombuffer(b"".join(e.tree.estimates for e in entries), np.uint8),
    )
