"""What a pass decided becomes text: commitment, what is learned from it, and what coordinators and drafters are told.

A token is committed only by what the target itself drew or tested, so candidates can change speed and nothing else.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.engine.protocol import Logits
from outrider.actors.exchange import verdicts as wire
from outrider.actors.exchange.commits import Commits
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of, starts_of
from outrider.actors.target.candidates.candidate_store import NO_COLUMN
from outrider.actors.target.state import yields
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.round import OWN, Round
from outrider.actors.target.state.session_table import MOST_DEPTH, Bools
from outrider.actors.target.state.target_events import (
    CommitFrame,
    Committed,
    Finish,
    Finished,
    VerdictsSent,
)
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.walks import Walks


def commit(state: TargetState, pass_: Pass, walks: Walks, logits: Logits, *, now: float) -> Round:
    """Commits what was drawn, and says so to the coordinators.

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
    nodes_ET = np.where(
        np.arange(tokens_ET.shape[1]) < counts_E[:, None], walks.nodes_ET[entries_E], -1
    )
    entry, step = (nodes_ET >= 0).nonzero()
    drawn = pass_.starts_E[entries_E[entry]] + nodes_ET[entry, step]
    drawn_N = np.zeros(len(pass_.tokens_N), np.bool_)
    drawn_N[drawn] = True
    origins_ET = np.full(tokens_ET.shape, OWN)
    origins_ET[entry, step] = pass_.drafters_N[drawn]
    done = Round(
        entries_E=entries_E,
        rows_E=rows_E,
        tokens_ET=tokens_ET,
        counts_E=counts_E,
        origins_ET=origins_ET,
        over_E=stopped_E | (counts_E >= table.remaining_S[rows_E]),
        stopped_E=stopped_E,
    )
    _learn(state, pass_, done, drawn_N)
    _count(state, pass_, done, drawn_N, walks)
    if state.recording.is_on:
        state.recording.decided(pass_, done, drawn_N)
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
    _tell(state, done, walks)
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


def _learn(state: TargetState, pass_: Pass, done: Round, drawn_N: Bools) -> None:
    """Tells what became of the candidates that the walks met."""
    entries_N = pass_.entries_N
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


def _count(state: TargetState, pass_: Pass, done: Round, drawn_N: Bools, walks: Walks) -> None:
    counts, rows_E = state.table.counts, done.rows_E
    sizes_E = sizes_of(pass_.starts_E)[done.entries_E]
    counts["tokens"][rows_E] += done.counts_E
    counts["near_ties"][rows_E] += walks.near_ties_E[done.entries_E]
    counts["rounds"][rows_E] += sizes_E > 0
    counts["plain_passes"][rows_E] += sizes_E == 0
    if not len(drawn_N):
        return
    entries_N = pass_.entries_N
    num_entries = len(pass_.rows_E)
    accepted_E = np.bincount(entries_N[drawn_N], minlength=num_entries)[done.entries_E]
    deepest = np.zeros(num_entries, np.int64)
    np.maximum.at(deepest, entries_N, pass_.depths_N)
    counts["verified"][rows_E] += sizes_E
    counts["accepted"][rows_E] += accepted_E
    levels = np.arange(MOST_DEPTH)
    state.table.reached_SD[rows_E] += levels < deepest[done.entries_E, None]
    state.table.accepted_SD[rows_E] += levels < accepted_E[:, None]
    state.tally.decided(state.drafters, pass_.drafters_N, pass_.depths_N, drawn_N)


def _tell(state: TargetState, done: Round, walks: Walks) -> None:
    """What coordinators hear of tokens, one frame a stream."""
    table, rows_E = state.table, done.rows_E
    origins_ET = np.full(done.origins_ET.shape, -1)
    entry, step = (done.origins_ET >= 0).nonzero()
    origins_ET[entry, step] = table.origins_SD[rows_E[entry], done.origins_ET[entry, step]]
    reports_E = table.reports_S[rows_E]
    for index in reports_E.nonzero()[0].tolist():
        count = int(done.counts_E[index])
        state.say(
            Committed(
                owner=state.sessions[int(rows_E[index])].owner,
                epoch=int(table.epochs_S[rows_E[index]]),
                tokens=tuple(done.tokens_ET[index, :count].tolist()),
                origins=tuple(origins_ET[index, :count].tolist()),
                logprobs=tuple(walks.logprobs.get(int(done.entries_E[index]), ())[:count]),
            )
        )
    streams_E = np.where(reports_E, -1, table.streams_S[rows_E])
    for stream in sorted(set(streams_E[streams_E >= 0].tolist())):
        chosen = (streams_E == stream).nonzero()[0]
        is_walked = np.arange(done.tokens_ET.shape[1]) < done.counts_E[chosen, None]
        commits = Commits(
            sessions_E=table.numbers_S[rows_E[chosen]],
            epochs_E=table.epochs_S[rows_E[chosen]],
            starts_E=starts_of(done.counts_E[chosen]),
            tokens_T=done.tokens_ET[chosen][is_walked],
            origins_T=origins_ET[chosen][is_walked],
        )
        state.say(CommitFrame(stream=stream, commits=commits))


def tell_drafters(state: TargetState, done: Round, target: wire.TargetActivity) -> None:
    """What drafters hear of the round, one frame each. Those at rest are told once; when they are woken they hear the rest.

    Args:
        state: The sessions.
        done: What was committed.
        target: What the target does next.
    """
    table = state.table
    goes_on = (~done.over_E & (table.rested_S[done.rows_E] < 0)).nonzero()[0]
    if not len(goes_on):
        return
    credits_E = state.credits_of(done.rows_E[goes_on])
    starving_E = ~state.has_candidates(done.rows_E[goes_on])
    root_counts, roots = state.roots.told(done.rows_E[goes_on])
    for number in state.live:
        is_told = table.joined_SD[done.rows_E[goes_on], number]
        told = is_told.nonzero()[0]
        if not len(told):
            continue
        chosen = goes_on[told]
        rows = done.rows_E[chosen]
        is_walked = np.arange(done.tokens_ET.shape[1]) < done.counts_E[chosen, None]
        verdicts = wire.Verdicts(
            target=target,
            handles_E=table.handles_S[rows],
            epochs_E=table.epochs_S[rows],
            lengths_E=table.lengths_S[rows],
            hashes_E=table.hashes_of(rows),
            credits_E=credits_E[told],
            seen_E=table.seen_SD[rows, number],
            starving_E=starving_E[told],
            starts_E=starts_of(done.counts_E[chosen]),
            tokens_T=done.tokens_ET[chosen][is_walked],
            root_starts_E=starts_of(root_counts[told]),
            roots_T=roots[is_told.repeat(root_counts)],
        )
        sizes = wire.ENTRY_BYTES + 2 * (done.counts_E[chosen] + root_counts[told])
        table.counts["wire_bytes"][rows] += sizes
        name = state.drafters[number]
        state.tally.of(name).sent += int(sizes.sum())
        state.say(VerdictsSent(drafter=name, verdicts=verdicts))
    if state.is_resting:
        table.rested_S[done.rows_E[goes_on]] = table.lengths_S[done.rows_E[goes_on]]


def end_sessions(state: TargetState, done: Round) -> None:
    """Ends the sessions whose texts are over, once their keys and values are those of the text."""
    for index in done.over_E.nonzero()[0].tolist():
        session = state.sessions[int(done.rows_E[index])]
        reason = Finish.STOP_TOKEN if done.stopped_E[index] else Finish.LENGTH
        state.say(Finished(owner=session.owner, reason=reason, stats=session.stats()))
        state.drop(session)
