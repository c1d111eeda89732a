"""What a target has done since it started, for `GetInfo` and Prometheus.

The worker's thread counts once a pass, a message and a session; others read at any time, without stopping it. Nothing that is
told ever falls: what an ended session did is added to the sums before the session is gone, under a lock that is taken for that
and for reading alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from outrider.actors.metrics.histogram import Histogram
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.state.session_table import Bools, SessionTable

OWN = "target"
"""Stands for a drafter's name where the target itself proposed a node."""

PASS_BOUNDS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
"""From small models on a CPU to large ones with long prompts."""

ERROR_BOUNDS = (0.5, 0.67, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Of measured over predicted: 1 is right."""


@dataclass(slots=True)
class DrafterTally:
    """What became of one drafter's candidates."""

    messages: int = 0
    """Messages with candidates, one a session."""
    received: int = 0
    """Bytes of them."""
    sent: int = 0
    """Bytes of verdicts."""
    proposed: int = 0
    """Candidate nodes that came."""
    verified: int = 0
    """Those that were part of a pass."""
    accepted_by_position: list[int] = field(default_factory=list)
    """Those that were drawn, by their distance from the text, 0 for the next token."""

    @property
    def accepted(self) -> int:
        """Candidate nodes that were drawn."""
        return sum(self.accepted_by_position)


@dataclass(slots=True)
class FeedbackTally:
    """What one drafter was told beyond tokens. Counted on the event loop."""

    num_bytes: int = 0
    """Bytes of frames that were sent."""
    rows: int = 0
    """Positions and candidates in them."""
    dropped_rows: int = 0
    """Those that were dropped for want of credit."""

    def sent(self, num_bytes: int, rows: int) -> None:
        """Counts a frame."""
        self.num_bytes += num_bytes
        self.rows += rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTotals:
    """Sums over sessions."""

    sessions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    plain_passes: int = 0
    stale: int = 0
    near_ties: int = 0
    draft_wait_s: float = 0.0

    @classmethod
    def of(cls, table: SessionTable, rows: Int64s) -> TargetTotals:
        """Over these sessions."""
        started = rows[table.started_S[rows]]
        counted = ("tokens", "rounds", "plain_passes", "stale", "near_ties")
        return cls(
            sessions=len(rows),
            prompt_tokens=int(table.prompts_S[started].sum()),
            cached_tokens=int(table.reused_S[rows].sum()),
            draft_wait_s=float(table.draft_wait_s_S[rows].sum()),
            **{name: int(table.counts[name][rows].sum()) for name in counted},
        )

    def __add__(self, other: TargetTotals) -> TargetTotals:
        names = [one.name for one in fields(self)]
        return TargetTotals(**{name: getattr(self, name) + getattr(other, name) for name in names})


class TargetTally:
    """The books of one target since its start."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a session ends and while sums are read."""
        self.drafters: dict[str, DrafterTally] = {}
        self.feedback: dict[str, FeedbackTally] = {}
        """By drafter that asked for some."""
        self.passes: dict[tuple[bool, int], Histogram] = {}
        """Seconds of passes, by whether they held prompt tokens and by the number of rows, rounded up to a power of two."""
        self.errors = Histogram(ERROR_BOUNDS)
        """Seconds of passes without prompts over those predicted."""
        self.busy_s = 0.0
        """Seconds of passes."""
        self.failed_passes = 0
        self._ended = TargetTotals()
        self._asked: tuple[float, float] | None = None
        """When the busy fraction was asked for last, and `busy_s` then."""

    def of(self, drafter: str) -> DrafterTally:
        """The books of one drafter."""
        tally = self.drafters.get(drafter)
        if tally is None:
            tally = self.drafters[drafter] = DrafterTally()
        return tally

    def passed(
        self, rows: int, pass_s: float, *, predicted_s: float | None, has_prompt: bool
    ) -> None:
        """Counts a pass.

        Args:
            rows: Tokens that were run.
            pass_s: Seconds that it took, all of it.
            predicted_s: Seconds that it was expected to take; None: it was no pass that is predicted.
            has_prompt: It held prompt tokens.
        """
        self.busy_s += pass_s
        key = (has_prompt, 1 << max(rows - 1, 0).bit_length())
        seconds = self.passes.get(key)
        if seconds is None:
            seconds = self.passes[key] = Histogram(PASS_BOUNDS_S)
        seconds.observe(pass_s)
        if predicted_s is not None and predicted_s > 0.0:
            self.errors.observe(pass_s / predicted_s)

    def received(self, drafter: str, num_entries: int, num_nodes: int, num_bytes: int) -> None:
        """Counts a message with candidates of so many sessions."""
        tally = self.of(drafter)
        tally.messages += num_entries
        tally.received += num_bytes
        tally.proposed += num_nodes

    def decided(
        self, names: Sequence[str], drafters_N: Int64s, depths_N: Int64s, drawn_N: Bools
    ) -> None:
        """Counts a pass over candidates.

        Args:
            names: Of drafters, by number.
            drafters_N: Who proposed each candidate, negative for the target itself.
            depths_N: Its distance from the text, 1 for the next token.
            drawn_N: Whether it was drawn.
        """
        counts = np.bincount(drafters_N + 1)
        for number in counts.nonzero()[0].tolist():
            tally = self.of(names[number - 1] if number else OWN)
            tally.verified += int(counts[number])
            drawn = np.bincount(depths_N[drawn_N & (drafters_N == number - 1)] - 1)
            known = tally.accepted_by_position
            known.extend([0] * (len(drawn) - len(known)))
            for position in drawn.nonzero()[0].tolist():
                known[position] += int(drawn[position])

    def take_busy(self, now: float) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        (since, before_s), self._asked = self._asked or (now, self.busy_s), (now, self.busy_s)
        return min((self.busy_s - before_s) / max(now - since, 1e-9), 1.0)

    def end(self, table: SessionTable, row: int) -> None:
        """Adds what a session did to the sums. With the lock held, right before it is forgotten."""
        self._ended += TargetTotals.of(table, np.array([row]))

    def totals(self, table: SessionTable) -> TargetTotals:
        """Sums over all sessions, those that run included. Any thread."""
        with self.lock:
            return self._ended + TargetTotals.of(table, table.used_S.nonzero()[0])
