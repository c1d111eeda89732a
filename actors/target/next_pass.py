"""The next pass: which sessions, with which candidates, or how long to wait instead. The four decisions of `schedule/` put together."""

from __future__ import annotations

import math

import numpy as np

from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation import learning
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import rank_within, sizes_of
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.candidates.frozen_pool import TRY_AGAIN
from outrider.actors.target.schedule.mode import Mode
from outrider.actors.target.schedule.waiting import Waiting
from outrider.actors.target.state import yields
from outrider.actors.target.state.passes import Pass, build
from outrider.actors.target.state.round import Round
from outrider.actors.target.state.session_table import Bools
from outrider.actors.target.state.target_state import TargetState

LONGEST_CHAIN_WITH_TREE = 8
"""Committed tokens up to which candidates are verified in the same pass. Longer chains are prompts: they ask for
the logits of their last row only."""


class Planner:
    """Plans passes, and learns from them."""

    def __init__(self, state: TargetState) -> None:
        self._state = state
        self.waiting = Waiting()
        self._mode = Mode()
        self._floor = 0.0
        self.last_nodes = 0
        """Candidates of the last pass."""
        self.last_tree = 0.0
        """Of a session that had some."""
        self._last_end: float | None = None
        """When the last round ended, if another follows at once."""
        self._grows_by_s = math.inf
        """When growth that is waited for has not come."""
        self._bare = 0
        """Passes without candidates, one after another."""
        self._wait_s = 0.0
        """Mean before a pass: part of what drafters are told that a round takes."""
        self._busy_s = 0.0
        self._busy_since: float | None = None

    def plan(self, now: float) -> Pass | float:
        """The next pass, or the seconds to wait for news, infinity: until there is some."""
        state, table = self._state, self._state.table
        rows = (table.used_S & table.started_S).nonzero()[0]
        if not len(rows):
            self._last_end = None
            return math.inf
        rows = rows[table.orders_S[rows].argsort()]
        pending = table.lengths_S[rows] - table.cached_S[rows]
        is_prompt = pending > LONGEST_CHAIN_WITH_TREE
        prompts, waiting = rows[is_prompt], pending[is_prompt]
        before = waiting.cumsum() - waiting
        sizes = np.minimum(np.maximum(state.settings.prefill_chunk - before, 0), waiting)
        prompts, sizes = prompts[sizes > 0], sizes[sizes > 0]
        decoding = rows[~is_prompt]
        drafting = self._drafts(decoding)
        chosen: list[Chosen] = []
        if drafting and len(decoding):
            num_rows = int(pending[~is_prompt].sum())
            has = state.has_candidates(decoding)
            chosen = self._choose(decoding, num_rows)
            self._floor = max(part.floor for part in chosen)
            left_s = self._left_s(decoding, has, chosen, state.clock.at(now))
            if left_s > 0.0 and (state.settings.lockstep or not len(prompts)):
                table.waited_s_S[decoding] = np.fmin(table.waited_s_S[decoding], now)
                return left_s
        self._end_wait(decoding, now)
        return build(
            table,
            prompts_P=prompts,
            sizes_P=sizes,
            rows_D=decoding,
            chosen=chosen,
            now=now,
            drafting=drafting,
        )

    # -- the four decisions ----------------------------------------------------------------------------------------

    def _drafts(self, decoding: Int64s) -> bool:
        """Whether drafters work."""
        state, settings = self._state, self._state.settings
        if not settings.adaptive or settings.lockstep:
            return True
        count = int(self._drafted(decoding).sum())
        if not count:
            self._last_end = None
            return True
        drafts = self._mode.enter(count)
        state.rest(is_resting=not drafts)
        return drafts

    def _drafted(self, decoding: Int64s) -> Bools:
        """For which sessions a drafter works, or would if it were not at rest: at rest it may not be attached, and one that has
        started again not even connected."""
        table = self._state.table
        takes_part = table.allowed_SD if self._state.is_resting else table.joined_SD
        live = (
            list(range(takes_part.shape[1])) if self._state.is_resting else list(self._state.live)
        )
        drafted: Bools = takes_part[decoding][:, live].any(axis=1) & table.speculates_S[decoding]
        return drafted

    def _choose(self, decoding: Int64s, num_rows: int) -> list[Chosen]:
        """What the pass takes of each kind of candidates."""
        chosen: list[Chosen] = []
        num_nodes, tokens = 0, float(len(decoding))
        for store in self._state.stores:
            part = store.choose(
                decoding, num_rows=num_rows + num_nodes, num_nodes=num_nodes, tokens=tokens
            )
            num_nodes, tokens = num_nodes + len(part.entries_N), part.tokens
            chosen.append(part)
        return chosen

    def _left_s(self, decoding: Int64s, has: Bools, chosen: list[Chosen], now: float) -> float:
        """Seconds that the next pass may still wait for candidates; 0: it begins."""
        state, table = self._state, self._state.table
        hopes = self._drafted(decoding) & (table.remaining_S[decoding] > 1)
        starving, most_s = hopes & ~has, state.settings.max_patience_s
        if state.settings.lockstep:
            waits = starving | (hopes & ~self._is_complete(decoding))
            since = table.verdict_s_S[decoding[waits]]
            return max(float(since.max()) + most_s - now, 0.0) if waits.any() else 0.0
        if not hopes.any():
            return 0.0
        pace = self._pace(decoding, has)
        awaited = hopes & ~(has & table.answered_S[decoding])
        if awaited.any():
            left_s = self._first_s(decoding[awaited], has[awaited], pace, now)
            left_s = max(left_s, self.waiting.promised_s - now)
            elapsed_s = now - float(table.verdict_s_S[decoding[awaited]].max())
        elif len(growing := (hopes & has & table.grows_S[decoding]).nonzero()[0]):
            elapsed_s = now - self.waiting.last_s
            gain = sum(self._leaves(decoding, growing, part) for part in chosen)
            left_s = self.waiting.left_s(gain, pace, self.waiting.next, elapsed_s)
            self._grows_by_s = now + left_s
        else:
            return 0.0
        return max(min(left_s, most_s - elapsed_s), 0.0)

    def _first_s(self, awaited: Int64s, has: Bools, pace: float, now: float) -> float:
        """Seconds to wait for the first candidates of sessions that drafters have not answered; 0: none of them is worth it."""
        table = self._state.table
        said_E, grown_E = table.due(awaited)
        survives_E = self._state.survives(awaited)
        hits_E = np.where(survives_E, table.hits_S[awaited], 0.0)
        # What answers an older text is of use if the tokens since are in it; where it cannot be, the answer to this one is awaited.
        fits_E = np.where(survives_E, hits_E ** np.maximum(grown_E, 0), 1.0)
        said_E = np.where(survives_E | np.isinf(said_E), said_E, table.verdict_s_S[awaited])
        more_E = np.maximum(table.yields_S[awaited] - 1.0 - self._floor * self.last_tree, 0.0)
        # Without waiting what answers is of use one pass later, if the text goes on into it, and saves the next wait.
        saved_E = np.minimum(pace * self.waiting.first.mean_s, more_E)
        # A miss loses the tree: that costs a pass without candidates, so a token, and no more than the tree holds.
        lost_E = np.where(survives_E, (1.0 - hits_E) * np.minimum(more_E, 1.0), 0.0)
        gains_E = np.where(has, self._state.open(awaited) * (more_E - saved_E), more_E + lost_E)
        gains_E *= fits_E
        is_due = np.isfinite(said_E)
        if not is_due.any():
            return 0.0
        return self.waiting.first_s(gains_E[is_due], now - said_E[is_due], pace)

    def _pace(self, rows: Int64s, has: Bools) -> float:
        """Tokens that the target commits in a second if it does not wait, as these sessions' passes over candidates go; whose candidates do not
        survive has none in any pass that is not waited for, and so a token."""
        is_fed_E = has | self._state.survives(rows)
        tokens = float(np.where(is_fed_E, self._state.table.yields_S[rows], 1.0).sum())
        # Where drafters stand still while passes run, there would be no candidates without waits. Elsewhere what comes during a pass comes without one.
        wait_s = self._wait_s if self._state.clock.is_shared else 0.0
        return tokens / (self._state.cost.predict(len(rows) + self.last_nodes) + wait_s)

    def _is_complete(self, decoding: Int64s) -> Bools:
        """In lockstep: which sessions have what their drafters send for this text."""
        kinds_E = self._state.table.kinds_S[decoding]
        complete = np.zeros(len(decoding), np.bool_)
        for kind, store in enumerate(self._state.stores):
            complete[kinds_E == kind] = store.is_complete(decoding[kinds_E == kind])
        return complete

    def _leaves(self, decoding: Int64s, growing: Int64s, chosen: Chosen) -> float:
        """Tokens that one level more of new trees is expected to add, over those that its rows cost."""
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

    # -- afterwards ------------------------------------------------------------------------------------------------

    def _end_wait(self, decoding: Int64s, now: float) -> None:
        """Counts the time that was waited, and learns where nothing came."""
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
        vain = rows[~table.answered_S[rows]]
        if len(vain):
            yields.in_vain(table, vain[~self._state.has_candidates(vain)])
            # Counts double, so that a silent drafter soon costs nothing.
            said_E, _ = table.due(vain)
            if np.isfinite(said_E).any():
                self.waiting.first.observe(2.0 * (now - float(said_E[np.isfinite(said_E)].max())))

    def finished(self, pass_: Pass, done: Round, now: float) -> TargetActivity:
        """What drafters are told of the next pass, right after a round was committed."""
        state, table = self._state, self._state.table
        self.last_nodes = len(pass_.tokens_N)
        self.last_tree = self.last_nodes / max(
            int((pass_.starts_E[1:] > pass_.starts_E[:-1]).sum()), 1
        )
        rows = done.rows_E[~done.over_E]
        has = state.has_candidates(rows)
        table.grows_S[rows] = ~has
        # Who has lost a tree awaits the answer to this verdict; what answers earlier ones is for texts that are no more.
        tried = sizes_of(pass_.starts_E)[done.entries_E[~done.over_E]] > 0
        lost = rows[tried & ~has]
        table.heard_S[lost] = table.lengths_S[lost] - 1
        pass_s = now - pass_.began_s
        self._learn_waits(pass_)
        wait_s, now = 0.0, state.clock.at(now)
        if pass_.drafting and not pass_.has_prompt:
            hopes = self._drafted(rows) & (table.remaining_S[rows] > 1)
            if hopes.any():
                wait_s = state.settings.max_patience_s
                if not state.settings.lockstep:
                    first_s = self._first_s(rows[hopes], has[hopes], self._pace(rows, has), now)
                    wait_s = min(first_s, wait_s)
        self.waiting.promised_s = now + wait_s
        free_s = 0.0
        if wait_s <= 0.0:
            free_s = state.cost.predict(len(rows) + self.last_nodes, drafting=pass_.drafting)
        return TargetActivity(
            pass_s=pass_s + self._wait_s, free_s=free_s, wait_s=wait_s, floor=self._floor
        )

    def _learn_waits(self, pass_: Pass) -> None:
        """How long waits are. Where drafters stand still while passes run, and candidates come by waiting alone, none is given up for ever."""
        if self._last_end is not None and not pass_.has_prompt:
            waited_s = max(pass_.began_s - self._last_end, 0.0)
            self._wait_s += (1.0 - learning.PASSES) * (waited_s - self._wait_s)
        self._bare = 0 if self.last_nodes or not self._state.clock.is_shared else self._bare + 1
        if self._bare >= TRY_AGAIN:
            # Nothing would tell that answers have become faster.
            self.waiting.forget()
            self._bare = 0

    def booked(
        self, pass_: Pass, *, model_s: float, now: float, committed: int, is_usual: bool
    ) -> None:
        """Attributes the time of a pass, all of it: what happens outside the model costs as much a second. An unusual one teaches nothing."""
        state, table = self._state, self._state.table
        pass_s = now - pass_.began_s
        self._busy_s += pass_s
        rows = pass_.rows_E
        is_prompt = pass_.chains_E > 1
        table.prefill_s_S[rows[is_prompt]] += pass_s
        table.verify_s_S[rows[~is_prompt]] += pass_s
        num_rows, drafting = pass_.batch.num_rows, pass_.drafting
        predicted_s = None
        if is_usual and not pass_.has_prompt:
            predicted_s = state.cost.predict(num_rows, drafting=drafting)
            state.cost.observe(num_rows, model_s, pass_s, drafting=drafting)
        state.tally.passed(num_rows, pass_s, predicted_s=predicted_s, has_prompt=pass_.has_prompt)
        began, self._last_end = self._last_end, now
        if began is None or pass_.has_prompt or not len(rows) or not is_usual:
            return
        round_s = now - began
        if state.settings.adaptive and not state.settings.lockstep:
            plain_s = state.cost.timed_s(len(rows))
            self._mode.observe(
                committed * plain_s / (len(rows) * max(round_s, 1e-9)),
                round_s / plain_s,
                is_caught_up=pass_.drafting and self._is_caught_up(rows),
            )

    def _is_caught_up(self, rows: Int64s) -> bool:
        """Drafters have answered for all that they missed when they were woken."""
        table = self._state.table
        drafted = rows[self._drafted(rows)]
        return len(drafted) > 0 and bool((table.heard_S >= table.woken_S)[drafted].all())

    def take_busy(self, now: float) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        since, self._busy_since = self._busy_since, now
        busy_s, self._busy_s = self._busy_s, 0.0
        return min(busy_s / max(now - since, 1e-9), 1.0) if since is not None else 0.0
