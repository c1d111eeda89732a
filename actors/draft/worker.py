"""The draft worker: the single owner of all drafting state, driven by one thread, knowing no Ray, no gRPC, no event loop.

Events are posted from any thread; reports leave through a callback on the worker's thread. One unit of work is: take in
what arrived, run one pass of the drafting method, send what grew. Between verdicts the worker keeps growing trees until it
is far enough ahead everywhere; then it sleeps until something arrives.

Invariants: a session's state changes only in `run_once`; a failure of the drafting method ends the sessions it was working
on, never the worker.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from outrider.actors.draft.board import Board
from outrider.actors.draft.drafter import Drafter
from outrider.actors.draft.events import Event, Report, SessionKey
from outrider.actors.draft.intake import handle
from outrider.actors.draft.news import flush
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.settings import BYTES_PER_TOKEN
from outrider.actors.draft.stats import DraftStats
from outrider.actors.trace import Recorder

NAP_S = 0.5
"""Longest sleep. Events wake the worker at once; this bounds the harm of a lost wake-up."""

CYCLE_SHARE = 0.1
"""Weight of a draft pass in the mean time of draft passes."""

BUSY_WINDOW_S = 5.0
"""Time over which the busy fraction is taken."""


class DraftWorker:
    """Runs sessions of one drafting method."""

    def __init__(
        self,
        drafter: Drafter,
        *,
        max_ahead: int,
        bytes_per_token: float = BYTES_PER_TOKEN,
        emit: Callable[[Report], None],
        lockstep: bool = False,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            drafter: The method.
            max_ahead: Nodes of one session below its base, at most.
            bytes_per_token: Bytes that a committed token should cost on the wire, both ways.
            emit: Takes reports, on the worker's thread. Must not block.
            lockstep: Send one finished tree and wait for its verdict.
            recorder: Takes records for a timeline; None: nobody asks for them.
            clock: Monotonic time, seconds.
        """
        self._board = Board(
            drafter,
            emit,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
            recorder=recorder,
        )
        self._drafter = drafter
        self._clock = clock
        self._inbox: deque[Event] = deque()
        self._wake = threading.Condition()
        self._is_stopped = False
        self._busy_s = 0.0
        self._window_began = time.monotonic()
        self._busy = 0.0
        self.total_busy_s = 0.0
        """Seconds of work since the start."""

    def post(self, event: Event) -> None:
        """Hands an event to the worker. From any thread; never blocks for work."""
        self._inbox.append(event)
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
        return self._drafter.num_free_slots

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self._drafter.num_slots

    @property
    def busy(self) -> float:
        """Fraction of the last seconds that the worker was working, 0 to 1."""
        return self._busy

    @property
    def stats(self) -> DraftStats:
        """What was done so far."""
        return self._board.stats

    @property
    def sessions(self) -> dict[SessionKey, DraftSession]:
        """The attached sessions. For the worker's thread and for tests."""
        return self._board.sessions

    def run(self) -> None:
        """Works until `stop`, then frees every session."""
        while not self._is_stopped:
            began = time.monotonic()
            worked = self.run_once(began)
            self._count_time(began, time.monotonic())
            if not worked:
                self._sleep()
        for session in list(self._board.sessions.values()):
            self._board.drop(session)

    def run_once(self, now: float) -> bool:
        """Takes in what arrived and does one unit of work.

        Args:
            now: Monotonic time, seconds.

        Returns:
            False if there is nothing to do until an event arrives.
        """
        took = self._take_in(now)
        # Verdicts are answered before the next pass: what already grew below the new base goes out at once.
        flush(self._board, now)
        began = self._clock()
        drafted = self._draft()
        ended = self._clock()
        if drafted:
            self._board.pass_s += CYCLE_SHARE * (ended - began - self._board.pass_s)
        # When nothing grows there is nothing to gather for.
        flush(self._board, ended if drafted else float("inf"))
        return took or drafted

    def _sleep(self) -> None:
        with self._wake:
            if not self._inbox and not self._is_stopped:
                self._board.recording.begin_sleep(self._board.sessions.values())
                self._wake.wait(NAP_S)
                self._board.recording.end_sleep()
        now = time.monotonic()
        self._count_time(now, now)

    def _count_time(self, began: float, ended: float) -> None:
        self._busy_s += ended - began
        self.total_busy_s += ended - began
        elapsed = ended - self._window_began
        if elapsed >= BUSY_WINDOW_S:
            self._busy = min(1.0, self._busy_s / elapsed)
            self._busy_s, self._window_began = 0.0, ended

    def _take_in(self, now: float) -> bool:
        took = False
        while self._inbox:
            took = True
            handle(self._board, self._inbox.popleft(), now)
        return took

    def _draft(self) -> bool:
        able = [
            session
            for session in self._board.sessions.values()
            if session.asked_at is None and not session.is_waiting and session.credits != 0
        ]
        if not able:
            return False
        self._board.recording.begin_pass()
        try:
            progress = self._drafter.draft(able)
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the worker
            self._board.fail(able, error)
            return True
        if progress.worked:
            self._board.count(passes=1)
            self._board.dirty.update(dict.fromkeys(progress.grown))
        self._board.recording.end_pass(progress.grown, worked=progress.worked)
        return progress.worked
