"""What is counted of a round, and what coordinators and drafters are told of it: nothing that the next pass depends on, so it can wait
until that runs."""

from __future__ import annotations

import numpy as np

from outrider.actors.exchange import verdicts as wire
from outrider.actors.exchange.commits import Commits
from outrider.actors.exchange.frames import clock_us
from outrider.actors.speculation.trees.ragged import sizes_of, starts_of
from outrider.actors.target.state.passes import Pass, Round
from outrider.actors.target.state.session_table import MOST_DEPTH
from outrider.actors.target.state.target_events import CommitFrame, Committed, VerdictsSent
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.walks import Walks


def tell_coordinators(state: TargetState, pass_: Pass, done: Round, walks: Walks) -> None:
    """Counts a round, and says its tokens, one frame a stream.

    Args:
        state: The sessions.
        pass_: What was run.
        done: What was committed, as the last of these sessions.
        walks: What was decided.
    """
    _count(state, pass_, done, walks)
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


def tell_drafters(state: TargetState, done: Round, target: wire.TargetActivity, now: float) -> None:
    """What drafters hear of the round, one frame each. Those at rest are told once; when they are woken they hear the rest.

    Args:
        state: The sessions.
        done: What was committed.
        target: What the target does next.
        now: When that was decided, in seconds of the worker's clock.
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
            echo_us=clock_us(state.last_sent[number] + now) if number in state.last_sent else 0,
        )
        sizes = wire.ENTRY_BYTES + 2 * (done.counts_E[chosen] + root_counts[told])
        table.counts["wire_bytes"][rows] += sizes
        name = state.drafters[number]
        state.tally.of(name).sent += int(sizes.sum())
        state.say(VerdictsSent(drafter=name, verdicts=verdicts))
    if state.is_resting:
        table.rested_S[done.rows_E[goes_on]] = table.lengths_S[done.rows_E[goes_on]]


def _count(state: TargetState, pass_: Pass, done: Round, walks: Walks) -> None:
    counts, rows_E, drawn_N = state.table.counts, done.rows_E, done.drawn_N
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
