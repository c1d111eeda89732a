"""Whether speculation pays at all, found by trying: the pace with and without it, measured side by side.

The plan weighs candidates by what a pass over them takes, but drafting also takes time that no pass shows: processor cores,
memory bandwidth and messages that drafters and target share. So now and then, for a few rounds, drafters are told to rest
and the target decodes plainly; if that commits more tokens a second, it goes on so, and tries the drafters again from time to
time. Only paces taken right after one another are compared, because machines change their speed. For each load (number of
decoding sessions, in powers of two) the answer is its own. Pure: rounds are pushed in, no clock is read.

What it costs: while speculating, `PLAIN_ROUNDS` rounds at the plain pace after every 24, 48, ... 768 others; while
decoding plainly, `TRIAL_ROUNDS` rounds with drafters after every 64, 128, ... 4096.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PLAIN_ROUNDS = 8
"""Plain rounds of one comparison. Their pace hardly varies."""

TRIAL_ROUNDS = 32
"""Rounds with candidates of one comparison; how many tokens each commits varies much."""

SETTLING_ROUNDS = 2
"""First rounds after a change, which are not counted: passes of the drafters are still running, or begin anew."""

FIRST_PLAIN_GAP, LAST_PLAIN_GAP = 24, 768
"""Rounds between comparisons while speculating. The gap doubles as long as speculation wins clearly."""

FIRST_TRIAL_GAP, LAST_TRIAL_GAP = 64, 4096
"""Rounds between comparisons while decoding plainly. The gap doubles as long as speculation loses."""

CLEARLY = 1.1
"""Speculation wins clearly from this ratio of paces on; below it the comparison is repeated soon."""

MEMORY = 0.97
"""Weight of the past in the running pace of a mode: about thirty rounds."""


@dataclass(slots=True)
class Pace:
    """Tokens a second, forgetting."""

    tokens: float = 0.0
    seconds: float = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
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

    speculates: bool = True
    """The mode that won."""
    trying: bool = False
    """The other mode runs, for comparison."""
    rounds: int = 0
    """Since the mode last changed."""
    gap: int = FIRST_PLAIN_GAP
    """Rounds until the next comparison."""
    here: Pace = field(default_factory=Pace)
    """Of the mode that won."""
    there: Pace = field(default_factory=Pace)
    """Of the mode that is being tried."""


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
        load = self._loads.get(max(num_sessions - 1, 0).bit_length())
        if load is self._load:
            return
        if self._load.trying:
            # A comparison that the load interrupted says nothing; it comes again soon.
            self._load.trying, self._load.rounds = False, self._load.gap // 2
        if load is None:
            # A load that was never seen begins like the one before it.
            before = self._load.speculates
            gap = FIRST_PLAIN_GAP if before else FIRST_TRIAL_GAP
            load = self._loads[max(num_sessions - 1, 0).bit_length()] = _Load(before, gap=gap)
        self._load = load

    def observe(self, tokens: int, seconds: float) -> None:
        """Takes in one round that ran as `speculates` said.

        Args:
            tokens: Committed tokens of all sessions.
            seconds: Since the end of the round before, waiting included.
        """
        load = self._load
        load.rounds += 1
        if load.rounds <= SETTLING_ROUNDS or seconds <= 0.0:
            return
        counted = load.rounds - SETTLING_ROUNDS
        if load.trying:
            load.there.observe(tokens, seconds)
            if counted >= (PLAIN_ROUNDS if load.speculates else TRIAL_ROUNDS):
                _compare(load)
            return
        load.here.observe(tokens, seconds)
        if counted >= load.gap:
            load.trying, load.rounds = True, 0
            load.there = Pace()


def _compare(load: _Load) -> None:
    """Ends a comparison: the faster mode goes on."""
    speculative, plain = load.here.rate, load.there.rate
    if not load.speculates:
        speculative, plain = plain, speculative
    wins = speculative >= plain
    if wins == load.speculates:
        doubled = not wins or speculative >= CLEARLY * plain
        last = LAST_PLAIN_GAP if wins else LAST_TRIAL_GAP
        load.gap = min(2 * load.gap, last) if doubled else FIRST_PLAIN_GAP * 4
    else:
        load.gap = FIRST_PLAIN_GAP if wins else FIRST_TRIAL_GAP
    load.speculates, load.trying, load.rounds = wins, False, 0
    load.here = Pace()
