"""What a target takes in from drafters and about them: candidates, requests for what they lack."""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.target.schedule.waiting import Waiting
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    ResyncRequest,
    SessionClosed,
    Steer,
)
from outrider.actors.target.state.target_state import TargetState


def take(
    state: TargetState, event: CandidatesReceived, waiting: Waiting, *, arrived: float, now: float
) -> None:
    """Gives candidates to the store of their kind.

    Args:
        state: The sessions.
        event: The candidates.
        waiting: Learns how long they took.
        arrived: When they came, in seconds of the worker's clock.
        now: The same clock's now.
    """
    found, table, number = event.candidates, state.table, state.number_of(event.drafter)
    store, sizes_E = state.stores[found.kind], sizes_of(found.starts_E)
    if found.sent_us:
        state.last_sent[number] = 1e-6 * found.sent_us - arrived
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
    table.counts["wire_bytes"][rows] += found.bytes_E[known]
    table.seen_SD[rows, number] = found.numbers_E[known]
    may = table.allowed_SD[rows, number] & (table.kinds_S[rows] == found.kind)
    is_ahead = found.lengths_E[known] > table.lengths_S[rows]
    lengths = np.minimum(found.lengths_E[known], table.lengths_S[rows])
    is_on_text = table.hashes_SL[rows, lengths] == found.hashes_E[known]
    fits = np.where(is_ahead, found.may_be_ahead, is_on_text)
    for name in ("proposed", "stale"):
        table.counts[name][rows[~may | ~fits]] += sizes_E[known[~may | ~fits]]
    for row in rows[may & ~fits].tolist():
        # It has lost the thread.
        state.join(row, number, 0)
    is_taken = may & fits
    chosen, rows, lengths = known[is_taken], rows[is_taken], lengths[is_taken]
    for index in (~table.joined_SD[rows, number]).nonzero()[0].tolist():
        state.join(int(rows[index]), number, int(lengths[index]))
    if not len(chosen):
        state.recording.taken(event, now - arrived, rows_E, stale_E=sizes_E)
        return
    part = found if len(chosen) == len(rows_E) else found.only(chosen)
    grafted = store.graft(part, rows, number)
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
    is_here = ~is_ahead[is_taken]
    arrived = state.clock.at(arrived)
    _heard(state, rows[is_here], lengths[is_here], waiting, arrived - found.held_s)
    is_below = part.lengths_E == table.lengths_S[rows]
    silent = rows[is_below & (sizes_E[chosen] == 0)]
    table.silent_SD[silent, number] = table.lengths_S[silent]
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
    elif waiting.last_s > table.verdict_s_of(rows).max():
        waiting.next.observe(arrived - waiting.last_s)
    waiting.last_s = arrived


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
    state.allow(row, event.drafters)
    for number in joined:
        if not table.allowed_SD[row, number]:
            table.joined_SD[row, number] = False
            table.seen_SD[row, number] = 0
            state.say(SessionClosed(drafter=state.drafters[number], handle=session.handle))
