"""Whether speculation pays at all, found by trying: the pace with and without it, measured side by side.

The plan weighs candidates by what a pass over them takes, but drafting also takes time that no pass shows: processor cores,
memory bandwidth and messages that drafters and target share. So now and then, for a few rounds, drafters are told to rest
and the target decodes plainly; if that commits more tokens a second, it goes on so, and tries the drafters again from time to
time. Only paces taken right after one another are compared, because machines change their speed. For each load (number of
decoding sessions, in powers of two) the answer is its own. Pure: rounds are pushed in, no clock is read.

Candidates that always come too late need no comparison: nothing can be won by them. After sixteen rounds in which some came and none
was of use the drafters rest, and are tried again after 256 rounds, then 512, ...

What it costs: while speculating, some six rounds at the plain pace after 32, 128, 512, ... others; while decoding plainly,
some thirty rounds with drafters after 64, 128, ... 4096 others. With n sessions at once the first comparison comes n times
as soon, and thirty rounds become as many fewer, within bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PLAIN_ROUNDS = 4
"""Plain rounds of one comparison. Their pace hardly varies."""

TRIAL_ROUNDS = 32
"""Rounds with candidates of one comparison; how many tokens each commits varies much."""

SETTLING_ROUNDS = 2
"""First rounds after a change, which are not counted: passes of the drafters are still running, or begin anew."""

FIRST_PLAIN_GAP, LAST_PLAIN_GAP, PLAIN_GAP_GROWTH = 32, 1024, 4
"""Rounds between comparisons while speculating. The gap grows as long as speculation wins clearly."""

FIRST_TRIAL_GAP, LAST_TRIAL_GAP, TRIAL_GAP_GROWTH = 64, 4096, 2
"""Rounds between comparisons while decoding plainly. The gap grows as long as speculation loses."""

CLEARLY = 1.1
"""Speculation wins clearly from this ratio of paces on; below it the comparison is repeated soon."""

LEAST_GAP, LEAST_TRIAL_ROUNDS = 8, 6
"""Bounds of how far the first gap and a comparison shrink under load: a round of many sessions tells as much as many rounds of
one, and at a high load a run is few rounds."""

BADLY = 0.85
"""Speculation is turned off at once if its pace is below this part of the plain one; if it is less far below, only when the next
comparison says so too, for thirty rounds can mislead by a tenth."""

LATE_ROUNDS = 16
"""So many rounds without candidates one after another, though some came too late, turn speculation off at once."""

FIRST_LATE_GAP = 256
"""Rounds until drafters are tried again that were too late, at least. A way that is longer than eight passes seldom gets shorter."""

MEMORY = 0.985
"""Weight of the past in the running pace of a mode: about seventy rounds."""


@dataclass(slots=True)
class Pace:
    """Tokens a second, forgetting."""

    tokens: float = 0.0
    seconds: float = 0.0

    def observe(self, tokens: float, seconds: float) -> None:
        """Takes in one round."""
        self.tokens = MEMORY * self.tokens + tokens
        self.seconds = MEMORY * self.seconds + seconds

    @property
    def rate(self) -> float:
        """Tokens a second; 0 before anything was seen."""
        return self.tokens / self.seconds if self.seconds > 0.0 else 0.0


@dataclass(slots=True)
class _Load:
    """What is known about one load."""

    size: int = 0
    """Logarithm of its sessions, base two, rounded up."""
    speculates: bool = True
    """The mode that won."""
    trying: bool = False
    """The other mode runs, for comparison."""
    rounds: int = 0
    """Since the mode last changed."""
    is_warned: bool = False
    """The last comparison went against the mode, though not badly."""
    late: int = 0
    """Rounds one after another whose candidates all came too late."""
    gap: int = FIRST_PLAIN_GAP
    """Rounds until the next comparison."""
    here: Pace = field(default_factory=Pace)
    """Of the mode that won."""
    there: Pace = field(default_factory=Pace)
    """Of the mode that is being tried."""

    @property
    def first_plain_gap(self) -> int:
        """Rounds with candidates before the first comparison."""
        return max(FIRST_PLAIN_GAP >> self.size, LEAST_GAP)

    @property
    def comparison(self) -> int:
        """Rounds of the mode that is being tried."""
        if self.speculates:
            return PLAIN_ROUNDS
        return max(TRIAL_ROUNDS >> self.size, LEAST_TRIAL_ROUNDS)


class Governor:
    """Turns speculation off where plain decoding is faster, and on again where it is not."""

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}
        self._load = self._loads[0] = _Load()

    @property
    def speculates(self) -> bool:
        """Whether the next round should use candidates."""
        return self._load.speculates != self._load.trying

    def enter(self, num_sessions: int) -> None:
        """Tells the load of the next round.

        Args:
            num_sessions: Sessions that decode and may speculate.
        """
        size = max(num_sessions - 1, 0).bit_length()
        load = self._loads.get(size)
        if load is self._load:
            return
        if self._load.trying:
            # A comparison that the load interrupted says nothing; it comes again, the dear kind later each time.
            self._load.trying, self._load.rounds = False, self._load.gap // 2
            if not self._load.speculates:
                self._load.gap = min(TRIAL_GAP_GROWTH * self._load.gap, LAST_TRIAL_GAP)
        if load is None:
            # A load that was never seen begins like the one before it.
            load = self._loads[size] = _Load(size, self._load.speculates)
            load.gap = load.first_plain_gap if load.speculates else FIRST_TRIAL_GAP
        self._load = load

    def observe(self, tokens: float, seconds: float, *, is_late: bool | None = None) -> None:
        """Takes in one round that ran as `speculates` said.

        Args:
            tokens: Committed tokens of all sessions, and what else was done, in tokens of plain decoding.
            seconds: Since the end of the round before, waiting included.
            is_late: True if no session had candidates, but some came too late; False if there were some; None if there were
                none and none came (that says nothing: a drafter may have nothing to propose).
        """
        load = self._load
        if is_late is not None:
            load.late = load.late + 1 if is_late else 0
        if self.speculates and load.late >= LATE_ROUNDS:
            _give_up(load)
            return
        load.rounds += 1
        if load.rounds <= SETTLING_ROUNDS or seconds <= 0.0:
            return
        counted = load.rounds - SETTLING_ROUNDS
        if load.trying:
            load.there.observe(tokens, seconds)
            if counted >= load.comparison:
                _compare(load)
            return
        load.here.observe(tokens, seconds)
        if counted >= load.gap:
            load.trying, load.rounds = True, 0
            load.there = Pace()


def _give_up(load: _Load) -> None:
    """Turns speculation off without a comparison."""
    _go_on(load, speculates=False, is_clear=True)
    load.gap = max(load.gap, FIRST_LATE_GAP)
    load.trying, load.rounds, load.late = False, 0, 0
    load.here = Pace()


def _compare(load: _Load) -> None:
    """Ends a comparison: the faster mode goes on."""
    speculative, plain = load.here.rate, load.there.rate
    if not load.speculates:
        speculative, plain = plain, speculative
    if speculative >= plain:
        _go_on(load, speculates=True, is_clear=speculative >= CLEARLY * plain)
    elif load.speculates and speculative >= BADLY * plain and not load.is_warned:
        load.is_warned, load.gap = True, load.first_plain_gap
    else:
        _go_on(load, speculates=False, is_clear=True)
    load.trying, load.rounds = False, 0
    load.here = Pace()


def _go_on(load: _Load, *, speculates: bool, is_clear: bool) -> None:
    """Sets the mode, and when it is compared again."""
    first, last, growth = (
        (load.first_plain_gap, LAST_PLAIN_GAP, PLAIN_GAP_GROWTH)
        if speculates
        else (FIRST_TRIAL_GAP, LAST_TRIAL_GAP, TRIAL_GAP_GROWTH)
    )
    if speculates != load.speculates:
        load.gap = first
    else:
        load.gap = min(growth * load.gap, last) if is_clear else growth * first
    load.speculates, load.is_warned = speculates, False
