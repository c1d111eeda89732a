"""What a target takes in from drafters and about them: candidates, frozen trees, requests for what they lack."""

from __future__ import annotations

import structlog

from outrider.actors.target.board import Board
from outrider.actors.target.events import (
    Candidates,
    FrozenCandidates,
    ResyncRequest,
    SessionClosed,
    Steer,
)
from outrider.actors.target.session import Session

_log = structlog.get_logger(__name__)


def graft(board: Board, event: Candidates, arrived: float) -> None:
    """Puts candidates into the pool of their session.

    Args:
        board: The sessions.
        event: The candidates.
        arrived: When they came, in seconds of the worker's clock.
    """
    board.tally.received(event.drafter, len(event.tokens), event.num_bytes)
    session = board.sessions.get(event.handle)
    waited_s = board.clock() - arrived
    if session is None:
        board.recording.taken(event, waited_s, stale=len(event.tokens))
        board.say(SessionClosed(drafter=event.drafter, handle=event.handle))
        return
    stats = session.stats
    stats.candidate_messages += 1
    stats.wire_bytes += event.num_bytes
    session.seen[event.drafter] = event.number
    if event.drafter not in session.allowed or session.trees is not None:
        stats.stale += len(event.tokens)
        board.recording.taken(event, waited_s, stale=len(event.tokens))
        return
    if session.hash_at(event.base_length) != event.base_hash:
        stats.stale += len(event.tokens)
        board.recording.taken(event, waited_s, stale=len(event.tokens))
        board.join(session, event.drafter, 0)
        return
    board.join(session, event.drafter, event.base_length)
    estimates = event.estimates or b"\x80" * len(event.tokens)
    grafted = session.pool.graft(
        event.tokens,
        event.parents,
        [b / 255.0 for b in estimates],
        session.drafters.index(event.drafter),
        session.tokens[event.base_length :],
        board.calibrations[event.drafter],
    )
    stats.proposed += grafted.added + grafted.stale
    stats.stale += grafted.stale
    board.recording.taken(
        event, waited_s, fresh=grafted.added, stale=grafted.stale, refused=grafted.refused
    )
    if event.base_length == session.length:
        session.answered.add(event.drafter)
    _time_answer(session, event.base_length, arrived)


def hold(board: Board, event: FrozenCandidates, arrived: float) -> None:
    """Keeps a frozen tree for the text that it hangs below. Arguments: as `graft`."""
    num_nodes = event.frozen.tree.num_nodes
    board.tally.received(event.drafter, num_nodes, event.num_bytes)
    session = board.sessions.get(event.handle)
    if session is None:
        board.say(SessionClosed(drafter=event.drafter, handle=event.handle))
        return
    waited_s = board.clock() - arrived
    session.stats.candidate_messages += 1
    session.stats.wire_bytes += event.num_bytes
    if event.drafter not in session.allowed or session.trees is None:
        session.stats.stale += num_nodes
        board.recording.taken(event, waited_s, stale=num_nodes)
        return
    is_ahead = event.base_length > session.length
    if not is_ahead and session.hash_at(event.base_length) != event.base_hash:
        session.stats.stale += num_nodes
        board.recording.taken(event, waited_s, stale=num_nodes)
        board.join(session, event.drafter, 0)
        return
    board.join(session, event.drafter, min(event.base_length, session.length))
    is_new = False
    if event.base_length >= session.length:
        try:
            is_new = session.trees.take(
                event.drafter,
                length=event.base_length,
                hash_=event.base_hash,
                number=event.round,
                frozen=event.frozen,
            )
        except ValueError as error:
            _log.warning("frozen tree dropped", drafter=event.drafter, reason=str(error))
    session.stats.proposed += num_nodes
    board.recording.taken(
        event, waited_s, fresh=num_nodes if is_new else 0, stale=0 if is_new else num_nodes
    )
    if not is_new:
        session.stats.stale += num_nodes
        return
    _time_answer(session, event.base_length, arrived)


def _time_answer(session: Session, base_length: int, arrived: float) -> None:
    """Learns how long drafters take from a verdict to the first candidates of its base."""
    asked = session.take_verdict_time(base_length)
    if asked is not None:
        session.patience.observe_arrival(arrived - asked)
    elif session.ripens and base_length == session.length:
        session.patience.observe_gap(arrived - session.last_part)
    session.last_part = arrived


def answer_resync(board: Board, event: ResyncRequest) -> None:
    """Tells a drafter what it asked for."""
    session = board.sessions.get(event.handle)
    if session is None or event.drafter not in session.allowed:
        board.say(SessionClosed(drafter=event.drafter, handle=event.handle))
        return
    session.joined.add(event.drafter)
    board.resync(session, event.drafter, min(event.length, session.length))


def steer(board: Board, event: Steer) -> None:
    """Changes who drafts for a session, and how much."""
    session = board.of(event.owner)
    if session is None:
        return
    for drafter in session.joined.difference(event.drafters):
        board.say(SessionClosed(drafter=drafter, handle=session.handle))
        session.seen.pop(drafter, None)
    session.joined.intersection_update(event.drafters)
    # Names are only ever appended, so that origins already reported keep their meaning.
    known = session.drafters
    session.drafters = known + tuple(d for d in event.drafters if d not in known)
    session.allowed = frozenset(event.drafters)
    if event.max_nodes:
        session.limit_nodes(event.max_nodes)
