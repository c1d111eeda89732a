"""Where a target's time goes: to the sessions' statistics, the cost model, the busy share and the timeline."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.target.board import Board
from outrider.actors.target.passes import Outcome
from outrider.actors.target.plan import Entry


class Accounts:
    """Books of one target."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._busy_s = 0.0
        self._busy_since = board.clock()

    def take_busy(self) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        now = self._board.clock()
        busy = self._busy_s / max(now - self._busy_since, 1e-9)
        self._busy_s, self._busy_since = 0.0, now
        return min(busy, 1.0)

    def book(self, entries: Sequence[Entry], outcome: Outcome, started: float) -> None:
        """Attributes the time of a pass, all of it: what happens outside the model costs as much a second."""
        pass_s = self._board.clock() - started
        self._busy_s += pass_s
        has_prompt = False
        for entry in entries:
            is_prompt = entry.is_prefill or len(entry.chain) > 1
            has_prompt = has_prompt or is_prompt
            stats = entry.session.stats
            if is_prompt:
                stats.prefill_s += pass_s
            else:
                stats.verify_s += pass_s
        predicted_s = None if has_prompt else self._board.cost.predict(outcome.num_rows)
        if not has_prompt:
            self._board.cost.observe(outcome.num_rows, outcome.model_s, pass_s)
        self._board.tally.passed(
            outcome.num_rows, pass_s, predicted_s=predicted_s, has_prompt=has_prompt
        )
        self._board.recording.end_pass(
            entries, num_rows=outcome.num_rows, model_s=outcome.model_s, has_prompt=has_prompt
        )
