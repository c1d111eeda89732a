"""The books of one session's features: what came, at which positions, what is new in it, what has to wait for the text. Pure.

Features and verdicts come on streams of their own, so either may be first. A row is handed on once, when the text has come as far as the
target had when it sent it: a row at position p, once p + 2 tokens are committed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outrider.actors.exchange.features import RejectedNodes

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PositionRun:
    """What is known of consecutive positions."""

    start: int
    arrays: tuple[Array, ...]
    """A row for each position."""

    def part(self, start: int, end: int) -> Self:
        """The rows from one absolute position to before another."""
        rows = slice(start - self.start, end - self.start)
        return replace(self, start=start, arrays=tuple(array[rows] for array in self.arrays))


class StateRun(PositionRun):
    """Hidden states, float32 [T, L, D]."""


class TopRun(PositionRun):
    """The likeliest next tokens, int64 [T, K], and their log-probabilities, float32."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RejectedRun:
    """Candidates that were not drawn in one round, and their hidden states."""

    nodes: RejectedNodes
    states_NLD: NDArray[np.float32]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """A row for each candidate."""
        return (self.states_NLD,)

    @property
    def needs(self) -> int:
        """Tokens of the text that they hang below."""
        return int(self.nodes.positions_R[self.nodes.parents_R < 0].max(initial=0))


Run = StateRun | TopRun | RejectedRun


class PositionRuns:
    """Positions that came, in any order: disjoint runs that do not touch, ascending."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []

    @property
    def end(self) -> int:
        """End of the run that begins with the text: everything below it came."""
        return self._runs[0][1] if self._runs and self._runs[0][0] == 0 else 0

    @property
    def last(self) -> int:
        """End of the last run; 0: nothing came."""
        return self._runs[-1][1] if self._runs else 0

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Adds a run.

        Returns:
            The parts of it that had not come before, ascending.
        """
        fresh, at = [], start
        merged_start, merged_end = start, end
        others = []
        for run in self._runs:
            if run[1] < start or run[0] > end:
                others.append(run)
                continue
            if run[0] > at:
                fresh.append((at, run[0]))
            at = max(at, run[1])
            merged_start, merged_end = min(merged_start, run[0]), max(merged_end, run[1])
        if at < end:
            fresh.append((at, end))
        if merged_start < merged_end:
            self._runs = sorted([*others, (merged_start, merged_end)])
        return fresh

    def cut(self, end: int) -> None:
        """Forgets the positions from `end` on."""
        self._runs = [(start, min(stop, end)) for start, stop in self._runs if start < end]


class FeatureLedger:
    """What came for one session."""

    def __init__(self) -> None:
        self.states = PositionRuns()
        """Positions whose hidden states came."""
        self.tops = PositionRuns()
        """Positions whose likeliest tokens came."""
        self.doubled = 0
        """Rows that had come before."""
        self.missing = 0
        """Positions that were passed over: no pass computed them, or they were dropped."""
        self._held: list[Run] = []

    @property
    def held_bytes(self) -> int:
        """Of what waits for the text."""
        return sum(array.nbytes for run in self._held for array in run.arrays)

    def take(self, run: Run) -> None:
        """Takes rows in. What came before is left out."""
        if isinstance(run, RejectedRun):
            self._held.append(run)
            return
        count = len(run.arrays[0])
        known = self.states if isinstance(run, StateRun) else self.tops
        self.missing += max(run.start - known.last, 0)
        fresh = known.add(run.start, run.start + count)
        self.doubled += count - sum(end - start for start, end in fresh)
        self._held += [run.part(start, end) for start, end in fresh]

    def release(self, length: int) -> list[Run]:
        """What can be handed on, in the order in which it came.

        Args:
            length: Tokens of the text.
        """
        if not self._held:
            return []
        ready: list[Run] = []
        held: list[Run] = []
        for run in self._held:
            if isinstance(run, RejectedRun):
                (ready if run.needs <= length else held).append(run)
                continue
            end = run.start + len(run.arrays[0])
            cut = min(max(length - 1, run.start), end)
            if cut > run.start:
                ready.append(run if cut == end else run.part(run.start, cut))
            if cut < end:
                held.append(run.part(cut, end))
        self._held = held
        return ready

    def drop_oldest(self) -> int:
        """Forgets what has waited longest; it may come again. Returns the number of rows."""
        run = self._held.pop(0)
        return len(run.arrays[0])

    def cut(self, length: int) -> None:
        """The text was replaced after its first `length` tokens: what is known of later positions is forgotten."""
        self.states.cut(length)
        self.tops.cut(length)
        self._held = []
