"""An engine at the speed of a device that is not there: tokens from a table, and passes that take what a profile says, asleep.

So the whole service - Ray, gRPC, scheduling, drawing - can be run and measured as it would be beside that device, on a machine that
has only processors. As beside a device, the host goes on while a pass runs, until it asks for what came of it. What computing the tokens
takes, and drawing or choosing them, counts as part of the pass, so passes that a profile makes shorter than that come out longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.profiles import Profile
from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.tables.tabular_engine import TabularEngine
from outrider.actors.engine.tables.token_table import Table

LATE_STEP_S = 5e-6
"""By how much one pass changes what is known of late awakenings: they lie about a tenth of a millisecond behind, single ones far more, and
the middle one counts."""


class PassClock(Protocol):
    """What passes time by. Virtual time has another one."""

    def now(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Returns when so many seconds have passed."""
        ...


class WallClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleeps, without processor time."""
        time.sleep(seconds)


class EmulatedEngine(TabularEngine):
    """A table whose passes take time."""

    def __init__(
        self,
        table: Table,
        profile: Profile,
        settings: EngineSettings | None = None,
        *,
        clock: PassClock | None = None,
    ) -> None:
        """Gives a table slots, and its passes a duration.

        Args:
            table: The distributions.
            profile: Tells how long passes take.
            settings: Numbers of slots and rows; the rest is not read.
            clock: Passes the time; None: the machine's own.

        Raises:
            ValueError: A number is less than one.
        """
        super().__init__(table, settings, emulated=profile.name)
        self.profile = profile
        self._clock = WallClock() if clock is None else clock
        self._late_s = 0.0
        """By how much a sleep ends later than asked for, as a rule. A device does not, so it is slept so much less."""
        self._ends: float | None = None
        """When the pass that runs is over; None: none runs."""

    def seconds_of(self, batch: Sequence[Rows]) -> float:
        """What a pass over a batch takes by the profile, in seconds, with what the slots hold now. Runs nothing."""
        arrays = packed(batch)
        return self.profile.seconds(
            rows=arrays.num_rows,
            sessions=len(arrays),
            context=self._slots.context(arrays.slots_E),
        )

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`. The pass begins when the last one is over, and is over when `Logits.wait` returns."""
        self._wait()
        began = self._clock.now()
        arrays = packed(batch)
        logits = self.compute(arrays)
        self._ends = began + self.seconds_of(arrays)
        return replace(logits, wait=self._wait)

    def _wait(self) -> None:
        """Sleeps until the pass that runs is over."""
        if self._ends is None:
            return
        ends, self._ends = self._ends, None
        left = ends - self._clock.now()
        if left > self._late_s:
            self._clock.sleep(left - self._late_s)
            late = self._clock.now() - ends
            if abs(late) > LATE_STEP_S:
                self._late_s = max(0.0, self._late_s + math.copysign(LATE_STEP_S, late))

    def compute(self, batch: Sequence[Rows]) -> Logits:
        """As `forward`, but at once."""
        return super().forward(batch)
