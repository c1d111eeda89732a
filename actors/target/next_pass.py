"""The next pass: which sessions, with which candidates, or how long to wait instead. The target's three decisions (docs/scheduling.md) put together."""

from __future__ import annotations

import math

import numpy as np

from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.pass_start import PassStart
from outrider.actors.target.schedule.mode import Mode
from outrider.actors.target.state.passes import Pass, Round, build
from outrider.actors.target.state.target_state import TargetState


class Planner:
    """Plans passes, and learns from them."""

    def __init__(self, state: TargetState) -> None:
        self._state = state
        self.start = PassStart(state)
        is_adaptive = state.settings.adaptive and not state.settings.lockstep
        self._mode = Mode() if is_adaptive else None
        """None: drafters always work."""
        self._floor = 0.0
        """Tokens that the target commits in the time of a row, when it last chose candidates."""
        self._num_decoding = 0
        """Sessions that decode, including those that the pass leaves out."""
        self._last_end: float | None = None
        """When the last round ended; None: a pause followed it."""

    def plan(self, now: float) -> Pass | float:
        """The next pass, or the seconds to wait for news, infinity: until there is some."""
        state, table = self._state, self._state.table
        rows = (table.used_S & table.started_S).nonzero()[0]
        if not len(rows):
            self._last_end = None
            return math.inf
        rows = rows[table.orders_S[rows].argsort()]
        pending = table.lengths_S[rows] - table.cached_S[rows]
        is_prompt = pending > state.longest_chain
        prompts, waiting = rows[is_prompt], pending[is_prompt]
        before = waiting.cumsum() - waiting
        sizes = np.minimum(np.maximum(state.settings.prefill_chunk - before, 0), waiting)
        prompts, sizes = prompts[sizes > 0], sizes[sizes > 0]
        decoding = rows[~is_prompt]
        num_drafted = int(np.count_nonzero(self.start.drafted(decoding)))
        drafting = self._drafts(num_drafted)
        self._num_decoding = len(decoding)
        chosen: list[Chosen] = []
        has = state.has_candidates(decoding)
        if drafting and (num_drafted or has.any()):
            out, left_s = decoding[:0], 0.0
            if self.start.fits_once(decoding).any():
                is_busy = bool(has.any()) or len(prompts) > 0
                out_s = self.start.out_s(decoding, has, now, is_busy=is_busy)
                is_out, left_s = out_s > 0.0, float(out_s.min())
                out, decoding, has = decoding[is_out], decoding[~is_out], has[~is_out]
            if len(decoding):
                chosen = self._choose(decoding)
                self._floor = max(part.floor for part in chosen)
                left_s = self.start.left_s(decoding, has, chosen, state.clock.at(now))
                if len(out):
                    left_s = max(left_s, self.start.together_s(out, decoding, has, now))
            waits = left_s > 0.0 and (state.settings.lockstep or not len(prompts))
            for rows in (out, decoding) if waits else (out,):
                table.waited_s_S[rows] = np.fmin(table.waited_s_S[rows], now)
            if waits:
                return left_s
        self.start.end(decoding, now)
        return build(
            table,
            prompts_P=prompts,
            sizes_P=sizes,
            rows_D=decoding,
            chosen=chosen,
            now=now,
            drafting=drafting,
        )

    # -- the decisions ---------------------------------------------------------------------------------------------

    def _drafts(self, num_drafted: int) -> bool:
        """Whether drafters work."""
        if self._mode is None:
            return True
        if not num_drafted:
            self._last_end = None
            return True
        drafts = self._mode.enter(num_drafted)
        self._state.rest(is_resting=not drafts)
        return drafts

    def _choose(self, decoding: Int64s) -> list[Chosen]:
        """What the pass takes of each kind of candidates."""
        chosen: list[Chosen] = []
        table = self._state.table
        num_rows = int((table.lengths_S[decoding] - table.cached_S[decoding]).sum())
        num_nodes, tokens = 0, float(len(decoding))
        for store in self._state.stores:
            part = store.choose(
                decoding, num_rows=num_rows + num_nodes, num_nodes=num_nodes, tokens=tokens
            )
            num_nodes, tokens = num_nodes + len(part.entries_N), part.tokens
            chosen.append(part)
        return chosen

    # -- afterwards ------------------------------------------------------------------------------------------------

    def finished(self, pass_: Pass, done: Round, now: float) -> TargetActivity:
        """What drafters are told of the next pass, right after a round was committed."""
        state, table, start = self._state, self._state.table, self.start
        rows = done.rows_E[~done.over_E]
        start.learn(pass_, self._last_end)
        pass_s = now - pass_.began_s + start.mean_s
        has = state.has_candidates(rows)
        table.grows_S[rows] = ~has
        if not len(pass_.tokens_N) and not start.drafted(rows).any():
            # Nobody drafts for these sessions, so nobody is told of the next pass and it does not wait.
            start.waiting.promised_s = 0.0
            return TargetActivity(pass_s=pass_s, free_s=0.0, wait_s=0.0, floor=self._floor)
        # A session that lost its tree awaits the answer to this verdict: answers to earlier ones are for texts that did not come.
        tried = sizes_of(pass_.starts_E)[done.entries_E[~done.over_E]] > 0
        lost = rows[tried & ~has]
        table.heard_S[lost] = table.lengths_S[lost] - 1
        wait_s = start.next_s(pass_, rows, has, state.clock.at(now))
        free_s = 0.0
        if wait_s <= 0.0:
            num_rows = len(rows) + start.last_nodes
            free_s = state.cost.predict(num_rows, drafting=pass_.drafting)
        return TargetActivity(
            pass_s=pass_s,
            free_s=free_s,
            wait_s=wait_s,
            floor=self._floor,
        )

    def booked(
        self, pass_: Pass, *, model_s: float, now: float, committed: int, is_usual: bool
    ) -> None:
        """Attributes the whole time of a pass, the time outside the model included. Nothing is learned from an unusual pass."""
        state, table = self._state, self._state.table
        pass_s = now - pass_.began_s
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
        if self._mode is not None:
            round_s, plain_s = now - began, state.cost.timed_s(self._num_decoding)
            self._mode.observe(
                committed * plain_s / (self._num_decoding * max(round_s, 1e-9)),
                round_s / plain_s,
                is_caught_up=pass_.drafting and self._is_caught_up(rows),
            )

    def _is_caught_up(self, rows: Int64s) -> bool:
        """Whether drafters have answered for the whole text that they missed while they rested."""
        table = self._state.table
        drafted = rows[self.start.drafted(rows)]
        return len(drafted) > 0 and bool((table.heard_S >= table.woken_S)[drafted].all())
