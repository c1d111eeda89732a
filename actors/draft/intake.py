"""What a draft worker takes in: sessions that come and go, verdicts, and the tokens it had asked for."""

from __future__ import annotations

import math

import grpc
import structlog

from outrider.actors.draft.board import Board
from outrider.actors.draft.drafter import CannotDraft, NoRoom
from outrider.actors.draft.events import (
    Attach,
    Attached,
    Closed,
    Detach,
    Event,
    LinkLost,
    Refused,
    Resync,
    ResyncWanted,
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

_log = structlog.get_logger(__name__)

HOLD_SHARE = 0.6
"""Part of a target pass, from its beginning, during which news gather. Less sends more messages, each of which costs drafter
and target a quarter of a millisecond on a CPU; more risks that news come after the pass has ended."""

PASS_GAP_SHARE = 0.2
"""Part of a target pass that news gather after others went out. They are of no use to the target before its pass is over, and
while that runs each message takes the interpreter from it for half a millisecond."""

SPARE_PASSES = 3.0
"""Draft passes before the end of a target's wait at which a tree goes out, ripe or not."""

PATIENT_RATIO = 8.0
"""A target whose pass takes more than so many draft passes gains by letting a new tree grow before it begins."""


def handle(board: Board, event: Event, now: float) -> None:
    """Takes in one event.

    Args:
        board: The sessions.
        event: What happened.
        now: Monotonic time, seconds.
    """
    match event:
        case Attach():
            _attach(board, event)
        case LinkLost():
            board.forget_link(event.link)
        case Verdict() | Resync() | Detach() | Closed():
            session = board.sessions.get(event.key)
            if session is not None:
                _handle_known(board, session, event, now)


def _handle_known(
    board: Board, session: DraftSession, event: Verdict | Resync | Detach | Closed, now: float
) -> None:
    match event:
        case Verdict():
            _follow(board, session, event, session.judge_verdict(event), now)
        case Resync():
            if event.epoch < session.epoch:
                board.count(stale=1)
            else:
                session.asked_at = None
                _follow(board, session, event, session.judge_resync(event), now)
        case Detach():
            board.drop(session)
        case Closed():
            board.end(session, "the target ended the session for this drafter")


def _attach(board: Board, event: Attach) -> None:
    old = board.sessions.get(event.key)
    if old is not None:
        board.drop(old)
    session = DraftSession(event)
    session.thrift = board.thrift_of(event.key.link)
    if any(
        other.is_resting for other in board.sessions.values() if other.key.link == event.key.link
    ):
        # The target has sent its drafters to rest; it will say otherwise if that is over.
        session.credits = 0
    try:
        board.drafter.attach(session)
    except NoRoom as error:
        code, message = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
    except CannotDraft as error:
        code, message = grpc.StatusCode.FAILED_PRECONDITION, str(error)
    else:
        board.sessions[event.key] = session
        _log.debug("session attached", request_id=event.request_id)
        board.emit(Attached(key=event.key))
        # Verdicts that were sent before the attachment are gone: the answer tells what they said, and the credits.
        board.emit(ResyncWanted(key=event.key, length=session.length))
        return
    board.emit(Refused(key=event.key, code=code, message=message))


def _follow(
    board: Board, session: DraftSession, event: Verdict | Resync, step: Step, now: float
) -> None:
    match step:
        case Stale():
            if isinstance(event, Resync):
                session.credits, session.epoch = event.credits, event.epoch
                board.dirty[session] = None
            else:
                board.count(stale=1)
        case Ask():
            board.ask(session, step.length, now)
        case Broken():
            board.end(session, step.message)
        case Extend() | Rewrite():
            session.asked_at = None
            session.credits, session.epoch = event.credits, event.epoch
            session.roots = event.roots if isinstance(event, Verdict) else ()
            _commit(board, session, step)
            if session.thrift is not None and session.frozen is None:
                session.thrift.committed(len(step.tokens))
            session.urgent_news = URGENT_NEWS
            if isinstance(event, Verdict):
                session.ripening.observe(len(step.tokens), event.pass_s)
                session.urgent_news = _urgent_news(board, event)
                session.hold_until = now + HOLD_SHARE * event.pass_s
                session.ripens_until = _ripens_until(board, session, event, now)
                session.gap_s = max(session.link_gap_s, PASS_GAP_SHARE * event.pass_s)
            if isinstance(event, Verdict) and event.starving:
                # What the target took in below here was dropped. The rest is on its way.
                session.unsend(event.seen)


def _ripens_until(board: Board, session: DraftSession, verdict: Verdict, now: float) -> float:
    """When the next message must go out, so that it comes while the target still waits."""
    if verdict.wait_s <= 0.0:
        return -math.inf
    return now + verdict.wait_s - session.round_trip_s - SPARE_PASSES * board.pass_s


def _urgent_news(board: Board, verdict: Verdict) -> int:
    """How many messages go out without gathering. A target that waits gets one, with a tree that has grown. One that has nothing
    and waits with others gets the levels of a new tree one by one: several if it is slow enough to wait for them."""
    if verdict.wait_s > 0.0:
        return 1
    if not verdict.starving:
        return 0
    return URGENT_NEWS if verdict.pass_s > PATIENT_RATIO * board.pass_s else 1


def _commit(board: Board, session: DraftSession, step: Extend | Rewrite) -> None:
    foreseen = session.num_foreseen(step.tokens) if isinstance(step, Extend) else 0
    try:
        if isinstance(step, Extend):
            board.drafter.extend(session, step.tokens)
        else:
            board.drafter.rewrite(session, step.keep, step.tokens)
    except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the worker
        board.fail([session], error)
        return
    session.is_waiting = False
    if board.lockstep:
        session.unsend()
    board.dirty[session] = None
    board.count(verdicts=1, committed=len(step.tokens), foreseen=foreseen)
