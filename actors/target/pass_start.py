"""When the next pass starts: how long it waits for candidates, and which sessions it leaves out. Decision 2 of docs/scheduling.md, applied to a target's sessions."""

from __future__ import annotations

import math

import numpy as np

from outrider.actors.speculation import learning
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import rank_within, sizes_of
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.candidates.frozen_pool import TRY_AGAIN
from outrider.actors.target.schedule.waiting import Waiting
from outrider.actors.target.state import yields
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.session_table import Bools, Float64s
from outrider.actors.target.state.target_state import TargetState


class PassStart:
    """Decides when the next pass of a target starts, and learns from the waits before passes."""

    def __init__(self, state: TargetState) -> None:
        self._state = state
        self.waiting = Waiting()
        self.last_nodes = 0
        """Candidates in the last pass."""
        self.rows_s = 0.0
        """Seconds that the candidates of one session added to the last pass, on average."""
        self.mean_s = 0.0
        """Mean seconds of a wait before a pass."""
        self._grows_by_s = math.inf
        """The wait for a growing tree to grow further is in vain after this time."""
        self._could_begin_s = math.inf
        """Since when a pass could have begun that waits for sessions which it would leave out."""
        self._bare = 0
        """Passes without candidates in a row."""

    def drafted(self, rows: Int64s) -> Bools:
        """For which sessions a drafter works. While drafters rest: for which one is allowed, as it may not be attached or connected then."""
        table = self._state.table
        if self._state.is_resting:
            takes_part_ED = table.allowed_SD[rows]
        else:
            takes_part_ED = table.joined_SD[rows][:, list(self._state.live)]
        drafted: Bools = takes_part_ED.any(axis=1) & table.speculates_S[rows]
        return drafted

    def fits_once(self, rows: Int64s) -> Bools:
        """Which sessions may be left out of passes: their candidates fit one text only, and are drafted while passes of others run."""
        state = self._state
        are_apart = not (state.settings.lockstep or state.clock.is_shared)
        fits_once: Bools = ~state.survives(rows) & are_apart
        return fits_once

    def out_s(self, decoding: Int64s, has: Bools, now: float, *, is_busy: bool) -> Float64s:
        """Seconds for which each session is left out of passes until its candidates come; 0: it takes part.

        Args:
            decoding: The sessions.
            has: Which have candidates.
            now: Seconds of the worker's clock.
            is_busy: Passes run without these sessions.
        """
        table = self._state.table
        out_s = np.zeros(len(decoding))
        entries = (self._hopes(decoding) & self.fits_once(decoding) & ~has).nonzero()[0]
        rows = decoding[entries]
        since_E, _ = table.due(rows)
        out_s[entries] = np.where(
            np.isfinite(since_E),
            self.waiting.out_s(
                table.yields_S[rows],
                now - table.verdict_s_of(rows),
                self._state.cost.predict(len(decoding) + self.last_nodes),
                is_busy=is_busy,
                most_s=self._state.settings.max_patience_s,
            ),
            0.0,
        )
        return out_s

    def together_s(self, out: Int64s, going: Int64s, has: Bools, now: float) -> float:
        """Seconds for which a pass that could begin waits for sessions that it would leave out; 0: it begins."""
        table = self._state.table
        self._could_begin_s = min(self._could_begin_s, now)
        return self.waiting.together_s(
            table.yields_S[out],
            now - table.verdict_s_of(out),
            self._state.cost.predict(len(going) + self.last_nodes),
            pace=self._pace(going, has),
            waited_s=now - self._could_begin_s,
        )

    def left_s(self, decoding: Int64s, has: Bools, chosen: list[Chosen], now: float) -> float:
        """Seconds that the next pass may still wait for candidates; 0: it begins."""
        state, table = self._state, self._state.table
        hopes = self._hopes(decoding) & ~self.fits_once(decoding)
        most_s = state.settings.max_patience_s
        if state.settings.lockstep:
            is_complete = has & self._is_complete(decoding)
            waits = hopes & ~is_complete & ~self._are_silent(decoding)
            since = table.verdict_s_of(decoding[waits])
            return max(float(since.max()) + most_s - now, 0.0) if waits.any() else 0.0
        if not hopes.any():
            return 0.0
        pace = self._pace(decoding, has)
        awaited = hopes & ~(has & table.answered_S[decoding])
        if awaited.any():
            if self.waiting.promised_s > 0.0:
                left_s = self.waiting.promised_s - now
            else:
                left_s = self._first_s(decoding[awaited], has[awaited], pace, now)
            elapsed_s = now - float(table.verdict_s_of(decoding[awaited]).max())
        elif len(growing := (hopes & has & table.grows_S[decoding]).nonzero()[0]):
            elapsed_s = now - self.waiting.last_s
            gain = sum(self._leaves(decoding, growing, part) for part in chosen)
            left_s = self.waiting.left_s(gain, pace, self.waiting.next, elapsed_s)
            self._grows_by_s = now + left_s
        else:
            return 0.0
        return max(min(left_s, most_s - elapsed_s), 0.0)

    def next_s(self, pass_: Pass, rows: Int64s, has: Bools, now: float) -> float:
        """Seconds for which the pass after this one will wait, as far as is known when it has ended; drafters are told.

        Args:
            pass_: The pass.
            rows: Its sessions that go on.
            has: Which of them have candidates.
            now: Seconds of the clock by which answers are timed.
        """
        wait_s = 0.0
        self.waiting.promised_s = 0.0
        if pass_.drafting and not pass_.has_prompt:
            hopes = self._hopes(rows) & ~self.fits_once(rows)
            if hopes.any():
                wait_s = self._state.settings.max_patience_s
                if not self._state.settings.lockstep:
                    first_s = self._first_s(rows[hopes], has[hopes], self._pace(rows, has), now)
                    wait_s = min(first_s, wait_s)
            self.waiting.promised_s = now + wait_s
        return wait_s

    def _hopes(self, rows: Int64s) -> Bools:
        """Which sessions can use candidates that are still to come."""
        hopes: Bools = self.drafted(rows) & (self._state.table.remaining_S[rows] > 1)
        return hopes

    def _first_s(self, awaited: Int64s, has: Bools, pace: float, now: float) -> float:
        """Seconds to wait for the first candidates of sessions whose last verdict drafters have not answered; 0: no wait is worth it."""
        table = self._state.table
        said_E, grown_E = table.due(awaited)
        survives_E = self._state.survives(awaited)
        hits_E = np.where(survives_E, table.hits_S[awaited], 0.0)
        # An answer to an older text is of use if it foresaw the tokens since. Where it cannot be of use, the answer to this text is awaited.
        fits_E = np.where(survives_E, hits_E ** np.maximum(grown_E, 0), 1.0)
        said_E = np.where(survives_E | np.isinf(said_E), said_E, table.verdict_s_of(awaited))
        more_E = np.maximum(table.yields_S[awaited] - 1.0 - pace * self.rows_s, 0.0)
        # Without a wait the answer is still of use one pass later, if the text goes on into it, and saves the next wait.
        saved_E = np.minimum(pace * self.waiting.first.mean_s, more_E)
        # A miss loses the tree: that costs a pass without candidates, so one token, but no more than the tree holds.
        lost_E = np.where(survives_E, (1.0 - hits_E) * np.minimum(more_E, 1.0), 0.0)
        gains_E = np.where(has, self._state.open(awaited) * (more_E - saved_E), more_E + lost_E)
        gains_E *= fits_E
        is_due = np.isfinite(said_E)
        if not is_due.any():
            return 0.0
        return self.waiting.first_s(gains_E[is_due], now - said_E[is_due], pace)

    def _pace(self, rows: Int64s, has: Bools) -> float:
        """Tokens that the target commits in a second if it does not wait. A session whose candidates do not survive a verdict has none without a wait,
        and commits one token a pass."""
        is_fed_E = has | self._state.survives(rows)
        tokens = float(np.where(is_fed_E, self._state.table.yields_S[rows], 1.0).sum())
        # On a shared device candidates come during waits only, so a pass with candidates takes its wait, too.
        wait_s = self.mean_s if self._state.clock.is_shared else 0.0
        return tokens / (self._state.cost.predict(len(rows) + self.last_nodes) + wait_s)

    def _is_complete(self, decoding: Int64s) -> Bools:
        """In lockstep: which sessions have what their drafters send for this text."""
        kinds_E = self._state.table.kinds_S[decoding]
        complete = np.zeros(len(decoding), np.bool_)
        for kind, store in enumerate(self._state.stores):
            complete[kinds_E == kind] = store.is_complete(decoding[kinds_E == kind])
        return complete

    def _are_silent(self, decoding: Int64s) -> Bools:
        """In lockstep: for which sessions all drafters have said that they have no candidates for this text."""
        table, live = self._state.table, list(self._state.live)
        lengths = table.lengths_S[decoding, None]
        is_silent = table.silent_SD[decoding][:, live] == lengths
        silent: Bools = (is_silent | ~table.joined_SD[decoding][:, live]).all(axis=1)
        return silent

    def _leaves(self, decoding: Int64s, growing: Int64s, chosen: Chosen) -> float:
        """Tokens that one more level of the growing trees is expected to add, less those that its rows cost."""
        table, entries = self._state.table, chosen.entries_N
        if not len(entries):
            return 0.0
        rows, ranks = decoding[entries], rank_within(entries)
        has_child = np.zeros((len(decoding), int(ranks.max()) + 2), np.bool_)
        # The last column stands for the text.
        has_child[entries, chosen.parents_N] = True
        is_leaf = ~has_child[entries, ranks]
        is_growing = np.zeros(len(decoding), np.bool_)
        is_growing[growing] = True
        is_leaf &= is_growing[entries]
        reach = np.minimum(table.max_depth_S[rows], table.remaining_S[rows] - 1)
        sizes = np.bincount(entries, minlength=len(decoding))[entries]
        is_leaf &= (chosen.depths_N - table.lengths_S[rows] < reach) & (
            sizes < table.max_nodes_S[rows]
        )
        gains_N = chosen.values_N * table.hits_S[rows] - chosen.floor
        return float(np.maximum(gains_N, 0.0)[is_leaf].sum())

    def end(self, decoding: Int64s, now: float) -> None:
        """A pass begins: counts the time that was waited, and learns from waits in vain."""
        self._could_begin_s = math.inf
        table = self._state.table
        rows = decoding[~np.isnan(table.waited_s_S[decoding])]
        if not len(rows):
            return
        table.draft_wait_s_S[rows] += now - table.waited_s_S[rows]
        now = self._state.clock.at(now)
        table.waited_s_S[rows] = np.nan
        if self._grows_by_s <= now:
            self.waiting.next.observe(2.0 * (now - self.waiting.last_s))
        self._grows_by_s = math.inf
        has = self._state.has_candidates(rows)
        # A session that has a tree which fits this text only has waited for others.
        is_vain = ~table.answered_S[rows] & ~(has & self.fits_once(rows))
        vain = rows[is_vain]
        if len(vain):
            yields.in_vain(table, rows[is_vain & ~has])
            # A wait in vain counts double, so that a silent drafter is soon not waited for.
            said_E, _ = table.due(vain)
            if np.isfinite(said_E).any():
                self.waiting.first.observe(2.0 * (now - float(said_E[np.isfinite(said_E)].max())))

    def learn(self, pass_: Pass, last_end: float | None) -> None:
        """Learns from a pass that has ended: what candidates cost, and how long it waited.

        On a shared device candidates come during waits only. After `TRY_AGAIN` passes without any, what was learned about waits is forgotten.

        Args:
            pass_: The pass.
            last_end: When the pass before it ended, in seconds of the worker's clock; None: none did right before.
        """
        cost = self._state.cost
        self.last_nodes = len(pass_.tokens_N)
        num_trees = int(np.count_nonzero(sizes_of(pass_.starts_E)))
        num_rows = pass_.batch.num_rows
        tree_s = cost.predict(num_rows) - cost.predict(num_rows - self.last_nodes)
        self.rows_s = tree_s / max(num_trees, 1)
        if last_end is not None and not pass_.has_prompt:
            waited_s = max(pass_.began_s - last_end, 0.0)
            self.mean_s += (1.0 - learning.PASSES) * (waited_s - self.mean_s)
        self._bare = 0 if self.last_nodes or not self._state.clock.is_shared else self._bare + 1
        if self._bare >= TRY_AGAIN:
            # Without a wait nothing would show that drafters have become faster.
            self.waiting.forget()
            self._bare = 0
