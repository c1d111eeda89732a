"""Which positions of a text something is known of, as runs. Pure."""

from __future__ import annotations


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
