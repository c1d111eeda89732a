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
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import grpc
import structlog

from outrider.actors.draft.drafter import CannotDraft, Drafter, NoRoom
from outrider.actors.draft.events import (
    Attach,
    Attached,
    Closed,
    Detach,
    Drafted,
    Ended,
    Event,
    LinkLost,
    Refused,
    Report,
    Resync,
    ResyncWanted,
    SessionKey,
    SessionNews,
    Verdict,
)
from outrider.actors.draft.session import (
    URGENT_NEWS,
    Ask,
    Broken,
    DraftSession,
    Extend,
    Rewrite,
    Stale,
    Step,
)
from outrider.actors.trace import TraceRecord, TraceRing

ASK_AGAIN_S = 1.0
"""After this time without an answer, a verdict that does not fit makes the worker ask for the missing tokens again."""

NAP_S = 0.5
"""Longest sleep. Events wake the worker at once; this bounds the harm of a lost wake-up."""

HOLD_SHARE = 0.6
"""Part of a target pass, from its beginning, during which news gather. Less sends more messages, each of which costs drafter
and target a quarter of a millisecond on a CPU; more risks that news come after the pass has ended."""

PATIENT_RATIO = 8.0
"""A target whose pass takes more than so many draft passes gains by letting a new tree grow before it begins."""

CYCLE_SHARE = 0.1
"""Weight of a draft pass in the mean time of draft passes."""

BUSY_WINDOW_S = 5.0
"""Time over which the busy fraction is taken."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStats:
    """What a worker did since it started."""

    passes: int = 0
    """Units of drafting work."""
    messages: int = 0
    """Candidate messages sent."""
    nodes: int = 0
    """Candidate nodes sent, repeated ancestors included."""
    verdicts: int = 0
    """Verdicts that continued the text."""
    committed: int = 0
    """Tokens committed in sessions that were attached."""
    foreseen: int = 0
    """Those that were in the drafter's tree when their verdict arrived."""
    stale: int = 0
    """Verdicts and resyncs that said nothing new."""
    resyncs: int = 0
    """Times that missing tokens were asked for."""
    failures: int = 0
    """Drafting passes that raised."""


class DraftWorker:
    """Runs sessions of one drafting method."""

    def __init__(
        self,
        drafter: Drafter,
        *,
        max_ahead: int,
        emit: Callable[[Report], None],
        lockstep: bool = False,
        track: str = "drafter",
        trace: TraceRing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            drafter: The method.
            max_ahead: Nodes of one session below its base, at most.
            emit: Takes reports, on the worker's thread. Must not block.
            lockstep: Send one finished tree and wait for its verdict.
            track: Whose passes the records of the trace are.
            trace: Takes a record of each pass.
            clock: Monotonic time, seconds.
        """
        self._drafter = drafter
        self._max_ahead = max_ahead
        self._emit = emit
        self._lockstep = lockstep
        self._track = track
        self._trace = trace
        self._clock = clock
        self._inbox: deque[Event] = deque()
        self._wake = threading.Condition()
        self._is_stopped = False
        self._sessions: dict[SessionKey, DraftSession] = {}
        self._dirty: dict[DraftSession, None] = {}
        self._counts = dict.fromkeys(DraftStats.__dataclass_fields__, 0)
        self._pass_s = 0.0
        self._busy_s = 0.0
        self._window_began = time.monotonic()
        self._busy = 0.0

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
        return DraftStats(**self._counts)

    @property
    def sessions(self) -> dict[SessionKey, DraftSession]:
        """The attached sessions. For the worker's thread and for tests."""
        return self._sessions

    def run(self) -> None:
        """Works until `stop`, then frees every session."""
        while not self._is_stopped:
            began = time.monotonic()
            worked = self.run_once(began)
            self._count_time(began, time.monotonic())
            if not worked:
                self._sleep()
        for session in list(self._sessions.values()):
            self._drop(session)

    def run_once(self, now: float) -> bool:
        """Takes in what arrived and does one unit of work.

        Args:
            now: Monotonic time, seconds.

        Returns:
            False if there is nothing to do until an event arrives.
        """
        took = self._take_in(now)
        # Verdicts are answered before the next pass: what already grew below the new base goes out at once.
        self._flush(now)
        began = self._clock()
        drafted = self._draft()
        ended = self._clock()
        if drafted:
            self._pass_s += CYCLE_SHARE * (ended - began - self._pass_s)
        # When nothing grows there is nothing to gather for.
        self._flush(ended if drafted else float("inf"))
        return took or drafted

    def _sleep(self) -> None:
        with self._wake:
            if not self._inbox and not self._is_stopped:
                self._wake.wait(NAP_S)
        now = time.monotonic()
        self._count_time(now, now)

    def _count_time(self, began: float, ended: float) -> None:
        self._busy_s += ended - began
        elapsed = ended - self._window_began
        if elapsed >= BUSY_WINDOW_S:
            self._busy = min(1.0, self._busy_s / elapsed)
            self._busy_s, self._window_began = 0.0, ended

    def _count(self, **changes: int) -> None:
        for name, by in changes.items():
            self._counts[name] += by

    def _take_in(self, now: float) -> bool:
        took = False
        while self._inbox:
            took = True
            self._handle(self._inbox.popleft(), now)
        return took

    def _handle(self, event: Event, now: float) -> None:
        match event:
            case Attach():
                self._attach(event)
            case LinkLost():
                for lost in [s for k, s in self._sessions.items() if k.link == event.link]:
                    self._drop(lost)
            case Verdict() | Resync() | Detach() | Closed():
                session = self._sessions.get(event.key)
                if session is not None:
                    self._handle_known(session, event, now)

    def _handle_known(
        self, session: DraftSession, event: Verdict | Resync | Detach | Closed, now: float
    ) -> None:
        match event:
            case Verdict():
                self._follow(session, event, session.judge_verdict(event), now)
            case Resync():
                if event.epoch < session.epoch:
                    self._count(stale=1)
                else:
                    session.asked_at = None
                    self._follow(session, event, session.judge_resync(event), now)
            case Detach():
                self._drop(session)
            case Closed():
                self._end(session, "the target ended the session for this drafter")

    def _attach(self, event: Attach) -> None:
        old = self._sessions.get(event.key)
        if old is not None:
            self._drop(old)
        session = DraftSession(event)
        try:
            self._drafter.attach(session)
        except NoRoom as error:
            code, message = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        except CannotDraft as error:
            code, message = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        else:
            self._sessions[event.key] = session
            self._emit(Attached(key=event.key))
            # Verdicts that were sent before the attachment are gone: the answer tells what they said, and the credits.
            self._emit(ResyncWanted(key=event.key, length=session.length))
            return
        self._emit(Refused(key=event.key, code=code, message=message))

    def _follow(
        self, session: DraftSession, event: Verdict | Resync, step: Step, now: float
    ) -> None:
        match step:
            case Stale():
                if isinstance(event, Resync):
                    session.credits, session.epoch = event.credits, event.epoch
                    self._dirty[session] = None
                else:
                    self._count(stale=1)
            case Ask():
                self._ask(session, step.length, now)
            case Broken():
                self._end(session, step.message)
            case Extend() | Rewrite():
                session.asked_at = None
                session.credits, session.epoch = event.credits, event.epoch
                self._commit(session, step)
                session.urgent_news = URGENT_NEWS
                if isinstance(event, Verdict):
                    session.urgent_news = self._urgent_news(event) if event.starving else 0
                    session.hold_until = now + HOLD_SHARE * event.pass_s
                if isinstance(event, Verdict) and event.starving:
                    # The target has nothing of what we sent below here: it was dropped, or is on its way.
                    session.unsend()

    def _urgent_news(self, verdict: Verdict) -> int:
        """How many levels of a new tree to send one by one: several if the target is slow enough to wait for them."""
        return URGENT_NEWS if verdict.pass_s > PATIENT_RATIO * self._pass_s else 1

    def _commit(self, session: DraftSession, step: Extend | Rewrite) -> None:
        foreseen = session.num_foreseen(step.tokens) if isinstance(step, Extend) else 0
        try:
            if isinstance(step, Extend):
                self._drafter.extend(session, step.tokens)
            else:
                self._drafter.rewrite(session, step.keep, step.tokens)
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the worker
            self._fail([session], error)
            return
        session.is_waiting = False
        if self._lockstep:
            session.unsend()
        self._dirty[session] = None
        self._count(verdicts=1, committed=len(step.tokens), foreseen=foreseen)

    def _ask(self, session: DraftSession, length: int, now: float) -> None:
        if session.asked_at is not None and now - session.asked_at < ASK_AGAIN_S:
            return
        session.asked_at = now
        self._count(resyncs=1)
        self._emit(ResyncWanted(key=session.key, length=length))

    def _draft(self) -> bool:
        able = [
            session
            for session in self._sessions.values()
            if session.asked_at is None and not session.is_waiting
        ]
        if not able:
            return False
        began_ns = time.time_ns()
        try:
            progress = self._drafter.draft(able)
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the worker
            self._fail(able, error)
            return True
        if progress.worked:
            self._count(passes=1)
            self._dirty.update(dict.fromkeys(progress.grown))
            self._record(began_ns, len(progress.grown))
        return progress.worked

    def _record(self, began_ns: int, num_grown: int) -> None:
        if self._trace is not None:
            self._trace.append(
                TraceRecord(
                    track=self._track,
                    name="draft" if num_grown else "prefill",
                    start_us=began_ns / 1e3,
                    duration_us=(time.time_ns() - began_ns) / 1e3,
                    args={"sessions": num_grown},
                )
            )

    def _flush(self, now: float) -> None:
        if not self._dirty:
            return
        dirty = [s for s in self._dirty if self._lockstep or s.urgent_news or now >= s.hold_until]
        for session in dirty:
            del self._dirty[session]
        by_link: dict[int, list[SessionNews]] = {}
        nodes = 0
        for session in dirty:
            news = self._news_of(session)
            if news is not None:
                by_link.setdefault(session.key.link, []).append(news)
                nodes += news.num_nodes
                session.urgent_news = max(session.urgent_news - 1, 0)
        for link, entries in by_link.items():
            self._emit(Drafted(link=link, entries=entries))
        if by_link:
            self._count(messages=len(by_link), nodes=nodes)

    def _news_of(self, session: DraftSession) -> SessionNews | None:
        if session.asked_at is not None or session.key not in self._sessions:
            return None
        if not self._lockstep:
            return session.take_news(self._max_ahead)
        if session.is_waiting or not self._drafter.is_complete(session):
            return None
        news = session.take_news(session.speculation.max_nodes)
        session.is_waiting = news is not None
        return news

    def _fail(self, sessions: Iterable[DraftSession], error: Exception) -> None:
        self._count(failures=1)
        _log.error("drafting failed", error=repr(error), exc_info=error)
        for session in list(sessions):
            self._end(session, f"drafting failed: {error!r}; attach another drafter")

    def _end(self, session: DraftSession, message: str) -> None:
        if session.key in self._sessions:
            self._drop(session)
            self._emit(Ended(key=session.key, message=message))

    def _drop(self, session: DraftSession) -> None:
        del self._sessions[session.key]
        self._dirty.pop(session, None)
        self._drafter.detach(session)
