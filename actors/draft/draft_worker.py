"""The draft worker: the thread around the core. Knows no Ray, no gRPC, no event loop.

Events are posted from any thread; reports leave through a callback on the worker's thread. One unit of work is: take in
what arrived, begin a pass, send what is due, run the pass. When there is nothing to run the worker sleeps until something
arrives.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.state.draft_events import Event, Report
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import DraftPass, Noted

NAP_S = 0.5
"""Longest sleep. Events wake the worker at once; this bounds the harm of a lost wake-up."""

BUSY_WINDOW_S = 5.0
"""Time over which the busy fraction is taken."""

_log = structlog.get_logger(__name__)


class DraftWorker:
    """Drives a core."""

    def __init__(
        self,
        core: DraftCore,
        *,
        emit: Callable[[Report], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            core: Used by the thread that calls `run` only.
            emit: Takes reports, on that thread. Must not block.
            clock: Monotonic time, seconds.
        """
        self.core = core
        """For the worker's thread and for tests."""
        self._emit = emit
        self._clock = clock
        self._inbox: deque[tuple[float, Event]] = deque()
        self._wake = threading.Condition()
        self._is_asleep = False
        self._is_stopped = False
        self._busy_s = 0.0
        self._window_began = clock()
        self._busy = 0.0
        self.total_busy_s = 0.0
        """Seconds of work since the start."""

    def post(self, event: Event) -> None:
        """Hands an event to the worker. From any thread; never blocks for work."""
        self._inbox.append((self._clock(), event))
        # Not while it works: it looks before it sleeps.
        if self._is_asleep:
            with self._wake:
                self._wake.notify()

    def stop(self) -> None:
        """Ends `run` after the unit of work that it is in. From any thread."""
        with self._wake:
            self._is_stopped = True
            self._wake.notify()

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        try:
            return self.core.drafter.num_free_slots
        except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
            _log.error("a drafting method does not tell its free slots", error=repr(error))
            return self.num_slots - len(self.core.sessions)

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self.core.drafter.num_slots

    @property
    def note(self) -> str:
        """What the method has found out about its model, for people; empty: nothing."""
        drafter = self.core.drafter
        return drafter.note if isinstance(drafter, Noted) else ""

    @property
    def busy(self) -> float:
        """Fraction of the last seconds that the worker was working, 0 to 1."""
        return self._busy

    @property
    def stats(self) -> DraftStats:
        """What was done so far."""
        return self.core.stats

    def run(self) -> None:
        """Works until `stop`, then frees every session."""
        while not self._is_stopped:
            began = self._clock()
            worked = self.run_once()
            self._count_time(began, self._clock())
            if not worked:
                self._sleep()
        self.core.close()

    def run_once(self) -> bool:
        """Takes in what arrived and does one unit of work.

        Returns:
            False if there is nothing to do until an event arrives.
        """
        now = self._clock()
        took = bool(self._inbox)
        while self._inbox:
            arrived, event = self._inbox.popleft()
            self.core.take(event, now, arrived)
        plan = self.core.begin(now)
        self._report()
        if plan is None:
            return took
        self._run(plan)
        self._report()
        return True

    def _run(self, plan: DraftPass) -> None:
        engine = self.core.drafter.engine
        logits = None
        try:
            if plan.batch is not None and engine is not None:
                logits = engine.forward(plan.batch)
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the worker
            self.core.fail(plan, error)
            return
        self.core.finish(plan, logits)

    def _report(self) -> None:
        for report in self.core.take_reports():
            self._emit(report)

    def _sleep(self) -> None:
        with self._wake:
            self._is_asleep = True
            if not self._inbox and not self._is_stopped:
                self.core.recording.begin_sleep()
                self._wake.wait(NAP_S)
                self.core.recording.end_sleep()
            self._is_asleep = False
        now = self._clock()
        self._count_time(now, now)

    def _count_time(self, began: float, ended: float) -> None:
        self._busy_s += ended - began
        self.total_busy_s += ended - began
        elapsed = ended - self._window_began
        if elapsed >= BUSY_WINDOW_S:
            self._busy = min(1.0, self._busy_s / elapsed)
            self._busy_s, self._window_began = 0.0, ended
