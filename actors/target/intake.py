"""What a target takes in from drafters and about them: candidates, frozen trees, requests for what they lack."""

from __future__ import annotations

import numpy as np
import structlog

from outrider.actors.exchange.candidates import ENTRY_BYTES
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.target.candidates.candidate_pools import Base
from outrider.actors.target.schedule.waiting import Waiting
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    FrozenCandidates,
    ResyncRequest,
    SessionClosed,
    Steer,
)
from outrider.actors.target.state.target_state import TargetState

_log = structlog.get_logger(__name__)


def graft(
    state: TargetState, event: CandidatesReceived, waiting: Waiting, *, arrived: float, now: float
) -> None:
    """Puts candidates into the pools of their sessions.

    Args:
        state: The sessions.
        event: The candidates.
        waiting: Learns how long they took.
        arrived: When they came, in seconds of the worker's clock.
        now: The same clock's now.
    """
    found, table, number = event.candidates, state.table, state.number_of(event.drafter)
    sizes_E = sizes_of(found.starts_E)
    state.tally.received(event.drafter, len(sizes_E), found.num_nodes, found.num_bytes)
    rows_E = np.array([state.rows.get(handle, -1) for handle in found.handles_E.tolist()], np.int64)
    for entry in (rows_E < 0).nonzero()[0].tolist():
        state.say(SessionClosed(drafter=event.drafter, handle=int(found.handles_E[entry])))
    known = (rows_E >= 0).nonzero()[0]
    # Of several entries of one session the first counts: a drafter unites them.
    first_S = np.empty(table.num_rows, np.int64)
    first_S[rows_E[known[::-1]]] = known[::-1]
    known = known[first_S[rows_E[known]] == known]
    rows = rows_E[known]
    table.counts["candidate_messages"][rows] += 1
    node_bytes = (found.num_bytes - ENTRY_BYTES * len(sizes_E)) // max(found.num_nodes, 1)
    table.counts["wire_bytes"][rows] += ENTRY_BYTES + sizes_E[known] * max(node_bytes, 1)
    table.seen_SD[rows, number] = found.numbers_E[known]
    may = table.allowed_SD[rows, number] & ~table.frozen_S[rows]
    lengths = np.minimum(found.lengths_E[known], table.hashes_SL.shape[1] - 1)
    fits = (found.lengths_E[known] <= table.lengths_S[rows]) & (
        table.hashes_SL[rows, lengths] == found.hashes_E[known]
    )
    table.counts["stale"][rows[~may | ~fits]] += sizes_E[known[~may | ~fits]]
    for row in rows[may & ~fits].tolist():
        # It has lost the thread.
        state.join(row, number, 0)
    chosen = known[may & fits]
    rows = rows_E[chosen]
    for index in (~table.joined_SD[rows, number]).nonzero()[0].tolist():
        state.join(int(rows[index]), number, int(found.lengths_E[chosen[index]]))
    if not len(chosen):
        state.recording.taken(event, now - arrived, rows_E, stale_E=sizes_E)
        return
    part = found if len(chosen) == len(rows_E) else found.only(chosen)
    base = Base(
        rows_E=rows,
        starts_E=part.lengths_E,
        lengths_E=table.lengths_S[rows],
        keys_SL=table.keys_SL,
    )
    grafted = state.pools.graft(part, base, np.full(len(rows), number), state.trust.of(number))
    table.counts["proposed"][rows] += grafted.added_E + grafted.stale_E
    table.counts["stale"][rows] += grafted.stale_E
    if state.recording.is_on:
        stale_E = sizes_E.copy()
        stale_E[chosen] = grafted.stale_E
        fresh_E, refused_E = np.zeros_like(sizes_E), np.zeros_like(sizes_E)
        fresh_E[chosen], refused_E[chosen] = grafted.added_E, grafted.refused_E
        state.recording.taken(
            event, now - arrived, rows_E, fresh_E=fresh_E, stale_E=stale_E, refused_E=refused_E
        )
    _heard(state, rows, part.lengths_E, waiting, arrived - found.held_s)
    is_below = part.lengths_E == table.lengths_S[rows]
    _time(state, rows[is_below & (grafted.added_E > 0)], waiting, arrived)


def _heard(
    state: TargetState, rows_E: Int64s, lengths_E: Int64s, waiting: Waiting, arrived: float
) -> None:
    """Learns how long drafters take from a verdict to the first candidates below that text, if they hold none back."""
    table = state.table
    is_news = lengths_E > table.heard_S[rows_E]
    rows, lengths = rows_E[is_news], lengths_E[is_news]
    said = table.said_s_SL[rows, lengths]
    if said.any():
        waiting.promised_s = 0.0
        waiting.first.observe(max(float(arrived - said.max()), 0.0))
    table.heard_S[rows] = lengths


def _time(state: TargetState, rows: Int64s, waiting: Waiting, arrived: float) -> None:
    """Learns how long drafters take between candidates below a text."""
    if not len(rows):
        return
    table = state.table
    if not table.answered_S[rows].all():
        table.answered_S[rows] = True
    elif waiting.last_s > table.verdict_s_S[rows].max():
        waiting.next.observe(arrived - waiting.last_s)
    waiting.last_s = arrived


def hold(
    state: TargetState, event: FrozenCandidates, waiting: Waiting, *, arrived: float, now: float
) -> None:
    """Keeps a frozen tree for the text that it hangs below.

    Args:
        state: The sessions.
        event: The tree.
        waiting: Learns how long it took.
        arrived: When it came, in seconds of the worker's clock.
        now: The same clock's now.
    """
    num_nodes = event.frozen.tree.num_nodes
    state.tally.received(event.drafter, 1, num_nodes, event.num_bytes)
    number, row = state.number_of(event.drafter), state.rows.get(event.handle)
    if row is None:
        state.say(SessionClosed(drafter=event.drafter, handle=event.handle))
        return
    table, session = state.table, state.sessions[row]
    counts = table.counts
    counts["candidate_messages"][row] += 1
    counts["wire_bytes"][row] += event.num_bytes
    is_new = False
    if table.allowed_SD[row, number] and session.trees is not None:
        length = session.length
        is_ahead = event.base_length > length
        if not is_ahead and int(table.hashes_SL[row, event.base_length]) != event.base_hash:
            state.join(row, number, 0)
        else:
            state.join(row, number, min(event.base_length, length))
            if not is_ahead:
                _heard(state, np.array([row]), np.array([event.base_length]), waiting, arrived)
            if event.base_length >= length:
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
            counts["proposed"][row] += num_nodes
    if not is_new:
        counts["stale"][row] += num_nodes
    elif event.base_length == session.length:
        _time(state, np.array([row]), waiting, arrived)
    state.recording.held(
        event,
        now - arrived,
        fresh=num_nodes if is_new else 0,
        stale=0 if is_new else num_nodes,
    )


def answer_resync(state: TargetState, event: ResyncRequest) -> None:
    """Tells a drafter what it asked for."""
    number, row = state.number_of(event.drafter), state.rows.get(event.handle)
    if row is None or not state.table.allowed_SD[row, number]:
        state.say(SessionClosed(drafter=event.drafter, handle=event.handle))
        return
    state.table.joined_SD[row, number] = True
    state.resync(row, number, min(event.length, int(state.table.lengths_S[row])))


def steer(state: TargetState, event: Steer) -> None:
    """Changes who drafts for a session, and how much."""
    session = state.of(event.owner)
    if session is None:
        return
    table, row = state.table, session.row
    joined = table.joined_SD[row].nonzero()[0].tolist()
    state.allow(session, event.drafters)
    for number in joined:
        if not table.allowed_SD[row, number]:
            table.joined_SD[row, number] = False
            table.seen_SD[row, number] = 0
            state.say(SessionClosed(drafter=state.drafters[number], handle=session.handle))
    if event.max_nodes:
        table.max_nodes_S[row] = event.max_nodes
