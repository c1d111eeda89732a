"""Looks at the load again and again, and has the number of replicas changed as the policy says. At the supervisor.

Invariants: one change at a time; what someone asks for by `Apply` goes before; a change that finds no room is told and tried again
after growing pauses, one replica at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from outrider.cluster.config.config_service import Autoscaling, Restarts
from outrider.cluster.placement.placement import PlacementError
from outrider.cluster.roster.roster import ReplicaScale
from outrider.cluster.supervise.actor_supervisor import LaunchFailed
from outrider.cluster.supervise.applying import Applier
from outrider.cluster.supervise.observed_load import LoadReading, LoadSample, Told, read, samples
from outrider.cluster.supervise.replica_policy import UNPAID_S, ReplicaDecision, decide
from outrider.cluster.supervise.restart_policy import RestartCount

MAX_PAUSE_S = 600.0
"""Longest pause before room is looked for again: nodes that a person adds are found within it."""

log = structlog.get_logger(__name__)


class Autoscaler:
    """Changes what an `Applier` keeps."""

    def __init__(
        self,
        applier: Applier,
        look: Callable[[], Awaitable[Sequence[Told]]],
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        applier: Carries changes out.
        look: Asks every actor for its metrics.
        clock_s: Monotonic time.
        """
        self._applier = applier
        self._look = look
        self._clock_s = clock_s
        self._readings: tuple[LoadReading, ...] = ()
        self._history: dict[str, list[LoadSample]] = {}
        self._work: asyncio.Task[None] | None = None
        self._growing: dict[str, int] = {}
        """Entries of which `_work` starts more, and how many there will be."""
        self._failures: dict[str, RestartCount] = {}
        """Of entries that found no room, until they have what they need."""
        self._not_before_s: dict[str, float] = {}

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(self._applier.config.autoscaling.interval_s)
                try:
                    await self.step()
                except Exception:  # A defect in here must not cost the service its supervisor.
                    log.exception("a look at the load failed")
        finally:
            if self._work is not None:
                self._work.cancel()
                await asyncio.wait([self._work])

    async def step(self) -> None:
        """One look, and what follows from it. What takes time goes on by itself."""
        if not any(scale.least < scale.most for scale in self._applier.scales):
            self._readings, self._history = (), {}  # What was before says nothing of this time.
            return
        readings = read(await self._look())
        if readings is None:
            return
        now_s, settings = self._clock_s(), self._applier.config.autoscaling
        for entry, sample in samples(self._readings, readings, now_s).items():
            self._history.setdefault(entry, []).append(sample)
        self._readings = readings
        self._forget(now_s, settings)
        if self._work is not None and not self._work.done():
            if self._growing and not any(
                self._is_needed(entry, count) for entry, count in self._growing.items()
            ):
                self._work.cancel()
            return
        changes = self._due(self._decide(), now_s)
        if changes and not self._applier.is_busy:
            self._growing = {entry: one.count for entry, one in changes.items() if one.grows}
            self._work = asyncio.create_task(self._change(changes, settings), name="scaling")

    def _decide(self) -> dict[str, ReplicaDecision]:
        """What should be otherwise, by entry."""
        found: dict[str, ReplicaDecision] = {}
        for scale in self._applier.scales:
            entry, current = scale.entry, self._applier.replicas[scale.entry]
            if entry in self._failures and not self._is_needed(entry, scale.wanted):
                del self._failures[entry], self._not_before_s[entry]
                self._applier.tell(entry, current, "")
            decision = self._decision(scale, current)
            if decision.wanted != current:
                found[entry] = decision
        return found

    def _is_needed(self, entry: str, count: int) -> bool:
        """Whether so many, if there were as many, would stay. A need that only pauses goes on."""
        (scale,) = (one for one in self._applier.scales if one.entry == entry)
        return self._decision(scale, count).wanted >= count

    def _decision(self, scale: ReplicaScale, current: int) -> ReplicaDecision:
        return decide(
            scale,
            current,
            self._history.get(scale.entry, ()),
            self._applier.config.autoscaling,
            now_s=self._clock_s(),
            is_short=bool(self._failures.keys() - {scale.entry}),
        )

    def _due(
        self, decisions: dict[str, ReplicaDecision], now_s: float
    ) -> dict[str, ReplicaDecision]:
        """What is done now: first what goes, which makes room; then what comes, unless it found none a moment ago."""
        fewer = {entry: one for entry, one in decisions.items() if not one.grows}
        if fewer:
            return fewer
        due = {}
        for entry, decision in decisions.items():
            if self._not_before_s.get(entry, 0.0) <= now_s:
                due[entry] = replace(decision, is_careful=entry in self._failures)
        return due

    async def _change(self, changes: dict[str, ReplicaDecision], settings: Autoscaling) -> None:
        try:
            await self._applier.scale(changes, drain_s=settings.drain_s)
        except (PlacementError, LaunchFailed) as error:
            for entry, decision in changes.items():
                self._failed(entry, decision, str(error), settings)
        else:
            for entry, decision in changes.items():
                if decision.grows and entry in self._failures:
                    self._failures[entry] = RestartCount()
            if not self._growing:
                self._not_before_s = dict.fromkeys(self._failures, 0.0)  # What went has left room.

    def _failed(
        self, entry: str, decision: ReplicaDecision, error: str, settings: Autoscaling
    ) -> None:
        policy = Restarts(
            backoff_s=settings.upscale_delay_s,
            max_backoff_s=max(MAX_PAUSE_S, settings.upscale_delay_s),
        )
        count = self._failures.get(entry, RestartCount()).after_death(served_s=0.0, policy=policy)
        pause_s = count.wait_s(policy)
        self._failures[entry] = count
        self._not_before_s[entry] = self._clock_s() + pause_s
        reason = f"{decision.reason}, but {error}; tried again in {pause_s:g} s"
        self._applier.tell(entry, decision.wanted, reason)
        log.warning("not scaled", entry=entry, wanted=decision.wanted, reason=reason)

    def _forget(self, now_s: float, settings: Autoscaling) -> None:
        """Samples that no window reaches any more, but for one, which shows how far back they go; and entries that are gone."""
        longest_s = max(UNPAID_S, settings.upscale_delay_s, settings.downscale_delay_s)
        entries = {scale.entry for scale in self._applier.scales}
        self._history = {
            entry: history[max(0, sum(one.at_s < now_s - longest_s for one in history) - 1) :]
            for entry, history in self._history.items()
            if entry in entries
        }
        self._failures = {k: v for k, v in self._failures.items() if k in entries}
        self._not_before_s = {k: v for k, v in self._not_before_s.items() if k in entries}
