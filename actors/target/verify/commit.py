"""What a pass decided becomes text: commitment, and what is learned from it for the next pass. `telling.py` has the rest.

A token is committed only by what the target itself drew or tested, so candidates can change speed and nothing else.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.engine.protocol import Logits
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.candidate_store import NO_COLUMN
from outrider.actors.target.state import yields
from outrider.actors.target.state.passes import OWN, Pass, Round
from outrider.actors.target.state.session_table import Bools
from outrider.actors.target.state.target_events import Finish, Finished
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.walks import Walks


def commit(state: TargetState, pass_: Pass, walks: Walks, logits: Logits, *, now: float) -> Round:
    """Commits what was drawn.

    Args:
        state: The sessions.
        pass_: What was run.
        walks: What was decided.
        logits: What the draws were made from.
        now: Seconds of the worker's clock.
    """
    table = state.table
    entries_E = pass_.draws_E.nonzero()[0]
    rows_E = pass_.rows_E[entries_E]
    tokens_ET = walks.tokens_ET[entries_E]
    counts_E, stopped_E = until_stop(table.stops_SK[rows_E], tokens_ET, walks.counts_E[entries_E])
    origins_ET = np.full(tokens_ET.shape, OWN)
    drawn_N = np.zeros(len(pass_.tokens_N), np.bool_)
    nodes_ET = np.full(tokens_ET.shape, -1)
    if len(drawn_N):
        is_walked_ET = np.arange(tokens_ET.shape[1]) < counts_E[:, None]
        nodes_ET = np.where(is_walked_ET, walks.nodes_ET[entries_E], -1)
        entry, step = (nodes_ET >= 0).nonzero()
        drawn = pass_.starts_E[entries_E[entry]] + nodes_ET[entry, step]
        drawn_N[drawn] = True
        origins_ET[entry, step] = pass_.drafters_N[drawn]
    done = Round(
        entries_E=entries_E,
        rows_E=rows_E,
        tokens_ET=tokens_ET,
        counts_E=counts_E,
        origins_ET=origins_ET,
        over_E=stopped_E | (counts_E >= table.remaining_S[rows_E]),
        stopped_E=stopped_E,
        drawn_N=drawn_N,
    )
    _learn(state, pass_, done)
    if state.recording.is_on:
        state.recording.decided(pass_, done)
    lasts_E = table.tokens_SL[rows_E, table.lengths_S[rows_E] - 1].astype(np.int64)
    table.append(rows_E, tokens_ET, counts_E)
    for index in (~table.plain_S[rows_E]).nonzero()[0].tolist():
        tokens = tokens_ET[index, : counts_E[index]].tolist()
        state.sessions[int(rows_E[index])].transform.commit(tokens)
    table.epochs_S[rows_E] += 1
    table.say(rows_E, state.clock.at(now))
    for store in state.stores:
        table.counts["stale"][rows_E] += store.advance(rows_E)
    if table.rooted_S[rows_E].any():
        state.roots.follow(pass_, done, lasts_E, nodes_ET, logits)
    return done


def until_stop(stops_EK: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> tuple[Int64s, Bools]:
    """Number of tokens up to and including the first stop token, and whether there is one."""
    is_stop_ETK = tokens_ET[:, :, None] == stops_EK[:, None, :]
    if not np.count_nonzero(is_stop_ETK):
        return counts_E, np.zeros(len(counts_E), np.bool_)
    is_walked_ET = np.arange(tokens_ET.shape[1]) < counts_E[:, None]
    is_stop_ET = is_stop_ETK.any(axis=2) & is_walked_ET
    stopped_E = is_stop_ET.any(axis=1)
    return np.where(stopped_E, is_stop_ET.argmax(axis=1) + 1, counts_E), stopped_E


def _learn(state: TargetState, pass_: Pass, done: Round) -> None:
    """Tells what became of the candidates that the walks met."""
    entries_N, drawn_N = pass_.entries_N, done.drawn_N
    had_E = np.zeros(len(pass_.rows_E), np.bool_)
    had_E[entries_N[pass_.drafters_N >= 0]] = True
    yields.took(
        state.table,
        done.rows_E,
        done.counts_E,
        had_E=had_E[done.entries_E],
        survives_E=state.survives(done.rows_E),
    )
    if not len(drawn_N):
        return
    has_parent_N = pass_.parents_N >= 0
    parents_N = np.where(has_parent_N, pass_.parents_N + pass_.starts_E[entries_N], 0)
    # What was never stated cannot have been wrong.
    is_met_N = (drawn_N[parents_N] | ~has_parent_N) & (pass_.columns_N != NO_COLUMN)
    state.trust.observe(pass_.drafters_N[is_met_N], pass_.estimates_N[is_met_N], drawn_N[is_met_N])


def end_sessions(state: TargetState, done: Round) -> None:
    """Ends the sessions whose texts are over, once their keys and values are those of the text."""
    for index in done.over_E.nonzero()[0].tolist():
        session = state.sessions[int(done.rows_E[index])]
        reason = Finish.STOP_TOKEN if done.stopped_E[index] else Finish.LENGTH
        state.say(Finished(owner=session.owner, reason=reason, stats=session.stats()))
        state.drop(session)
