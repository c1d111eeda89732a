"""A bound on the wall-clock time of a whole run: what each part of it may take, has taken and was cut to."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.actors.train.training_errors import ResumeError, TrainError

DEFAULT_MINUTES = 58.0
EVALUATION = "evaluation"
WRITING = "target writes"
GROWING = ("target-shallow", "target-half")
"""Parts in which the target has fewer layers than in the end."""

SHARES: Mapping[str, float] = {
    "tokenizer": 1.0,
    **dict.fromkeys(GROWING, 8.0),
    "target": 18.0,
    WRITING: 6.0,
    "draft": 11.0,
    "draft-small": 4.0,
    EVALUATION: 2.0,
}
"""What each part gets, relative to one another: about the minutes of the whole recipe on two cores."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecision:
    """How much of a part is done.

    Attributes:
        count: Steps, or rows.
        of: What the recipe asks for.
        minutes: The bound under which it was decided; 0 is none.
    """

    count: int
    of: int
    minutes: float

    def holds(self, of: int, minutes: float, done: int) -> bool:
        """Whether a run resumed after `done` keeps it: under the same bound, or if nothing is left to do."""
        return self.of == of and (self.minutes == minutes or done >= self.count)


def check_minutes(minutes: float) -> float:
    """`minutes` if it is a bound, or 0 for none.

    Raises:
        TrainError: It is negative or not finite.
    """
    if not (math.isfinite(minutes) and minutes >= 0):
        raise TrainError(f"minutes is {minutes}; give a number above 0, or 0 for no bound")
    return minutes


class Budget:
    """Shares the minutes of one call among its parts.

    A part may take its share and what earlier parts left over. If they took more than theirs, the parts that remain
    share what is left. The time spent on these parts by calls that were interrupted counts.
    """

    def __init__(
        self,
        path: Path,
        parts: Sequence[str],
        minutes: float,
        *,
        resume: bool = True,
        clock: Clock = time.monotonic,
        shares: Mapping[str, float] = SHARES,
    ) -> None:
        """Reads what was spent and decided.

        Args:
            path: Where that is kept.
            parts: The parts of this call, in order, of `shares`.
            minutes: Bound on all of them together; 0 is none.
            resume: Whether to count what earlier calls spent and keep what they decided for these parts.
            clock: Seconds, rising.
            shares: What each part gets, relative to one another.

        Raises:
            ResumeError: The file cannot be read.
        """
        self.minutes = minutes
        self.clock = clock
        self._path, self._parts, self._shares = path, tuple(parts), shares
        self._seconds: dict[str, float] = {}
        self._decided: dict[str, StepDecision] = {}
        if resume and path.exists():
            self._read()
        elif path.exists():
            with suppress(ResumeError):
                self._read()
            self._seconds = {}
            self._decided = {k: v for k, v in self._decided.items() if k not in self._parts}
        self._seconds.pop(EVALUATION, None)
        self._part: str | None = None
        self._since = clock()

    def begin(self, part: str) -> None:
        """From now on time is spent on `part`."""
        self.save()
        self._part = part

    def save(self) -> None:
        """Books the time since the last call; the first worker writes it down."""
        now = self.clock()
        if self._part is None:
            self._since = now
            return
        self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now - self._since
        self._since = now
        # Needs torch, which the command line does not import for the default of a flag.
        from outrider.actors.train.loop.data_parallel import is_first

        if not is_first():
            return
        content = {
            "seconds": self._seconds,
            "decided": {name: asdict(value) for name, value in self._decided.items()},
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(self._path)

    def spent(self) -> float:
        """Seconds that went into the parts of this call so far."""
        return sum(map(self._spent_on, self._parts))

    def left(self) -> float:
        """Seconds that the present part may still take; negative if it took too many, infinite without a bound."""
        if not self.minutes:
            return math.inf
        total = self.minutes * 60.0
        part = self._part if self._part is not None else self._parts[0]
        at = self._parts.index(part)
        spent, spent_here = self.spent(), self._spent_on(part)
        whole = sum(self._shares[name] for name in self._parts)
        until = sum(self._shares[name] for name in self._parts[: at + 1]) / whole * total
        to_come = sum(self._shares[name] for name in self._parts[at:])
        own = self._shares[part] / to_come * (total - (spent - spent_here))
        return max(own - spent_here, until - spent)

    def shares(self) -> dict[str, float]:
        """Minutes that each part of this call may take by itself."""
        whole = sum(self._shares[part] for part in self._parts)
        return {part: self._shares[part] / whole * self.minutes for part in self._parts}

    def decided(self, name: str) -> StepDecision | None:
        """What was decided under this name, in this call or an earlier one."""
        return self._decided.get(name)

    def decide(self, name: str, decision: StepDecision) -> None:
        """Keeps a decision."""
        self._decided[name] = decision
        self.save()

    def _spent_on(self, part: str) -> float:
        running = self.clock() - self._since if part == self._part else 0.0
        return self._seconds.get(part, 0.0) + running

    def _read(self) -> None:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            self._seconds = {str(name): float(value) for name, value in content["seconds"].items()}
            self._decided = {
                str(name): StepDecision(**value) for name, value in content["decided"].items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ResumeError(
                f"{self._path}: unreadable ({type(error).__name__}); delete it (time spent is then "
                "forgotten) or train without resume"
            ) from error
