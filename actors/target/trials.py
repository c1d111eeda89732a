"""Whether speculation pays at one load, found by trying: the pace with and without it, measured side by side. Pure.

Only paces taken right after one another are compared, because machines change their speed. The other way is tried for a few
rounds after a gap, and gaps grow as long as the answer stays clear.

- Trying to speculate while plain decoding goes on is dear: drafters catch up, share the machine, and may lose. A trial is billed for the work that plain
  decoding would have done in its time beyond what was done, and the next one waits until that is less than one part in a hundred
  of the time between. One whose bill grows too high is ended, and lost.
- A win that does not last is no win: the gap goes on growing until speculation has won clearly over as long a stretch.
- Doubt is decided for plain decoding, and the more sessions run, the less there is: a round of many tells as much as many rounds of one.

Candidates that nearly always come too late need no comparison: what they win now and then is less than drafting costs, but looks like a win
to a comparison that happens to see it. When the late rounds outnumber those in time by 64, each of which counts for eight, the drafters rest, and are
tried again after 256 rounds, then 512, ... Far fewer would not do: where the draft model is often wrong, a drafter next door is late for
most of some text, and pays in the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.actors.target.pace import Bill, Pace

PLAIN_ROUNDS = 4
"""Plain rounds of one comparison. Their pace hardly varies."""

CROWD = 4
"""From this size on (nine sessions and more) requests come and go in waves, first prompts, then tokens, and drafters are dearest where the
prompts are. A comparison must see both, so gap and comparison are of `CROWD_ROUNDS`."""

CROWD_ROUNDS = 32
"""See `CROWD`."""

CROWD_MARGIN = 1.1
"""Speculation in a crowd must be faster by this factor. With requests coming and going a comparison may be wrong by a tenth or two, and
the promise is never to be slower; a single stream's gain is far from this line, a crowd's often near it."""

FIRST_CROWD_TRIAL_GAP = 512
"""As `FIRST_TRIAL_GAP`, for crowds: there drafters have many prompts to catch up with before a trial."""

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

WORTH_WAKING = 1.05
"""Ratio of paces from which on drafters that rest are woken for good."""

LEAST_GAP, LEAST_TRIAL_ROUNDS = 8, 8
"""Bounds of how far the first gap and a comparison shrink with two to eight sessions: a round of many tells as much as many rounds of
one."""

DOUBT = 0.15
"""If speculation loses by more than this, over the root of the number of sessions, it is turned off at once; if by less, only when the
next comparison says so too, for thirty rounds of one session can mislead by a tenth."""

LATE_ROUNDS = 64
"""So many rounds without candidates, though some came too late, turn speculation off at once."""

IN_TIME_WORTH = 8
"""Late rounds that one with candidates in time makes up for. Behind 80 ms, six passes of the target that was measured, one round in twenty to
thirty had some, three in four were late, and decoding was a twelfth slower than without drafters; behind 20 ms one in three had, and it was half as
fast again."""

FIRST_LATE_GAP = 256
"""Rounds until drafters are tried again that were too late, at least. A way that is longer than eight passes seldom gets shorter."""

TRIAL_SHARE = 0.01
"""Of the time of plain decoding, what trials may lose."""

MOST_LOST, MOST_LOST_SHARE = 8.0, 0.01
"""A trial is ended when it has lost so many plain rounds, or so much of the gap before it if that is more. A single stream that commits as much as
plain decoding loses as much by chance now and then; a crowd whose drafters have long prompts to run loses it before they have begun."""


@dataclass(slots=True)
class Trials:
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
    """The last comparison went against the mode, though not by much."""
    late: int = 0
    """Rounds whose candidates all came too late, less what those in time make up for."""
    plain_gap: int = 0
    """Rounds of speculation until the next comparison."""
    trial_gap: int = 0
    """Rounds of plain decoding until the next one."""
    here: Pace = field(default_factory=Pace)
    """Of the mode that won."""
    there: Pace = field(default_factory=Pace)
    """Of the mode that is being tried."""
    bill: Bill = field(default_factory=Bill)

    def __post_init__(self) -> None:
        self.plain_gap, self.trial_gap = self._first_plain_gap, self._first_trial_gap

    @property
    def mode(self) -> bool:
        """Whether the next round should use candidates."""
        return self.speculates != self.trying

    def interrupt(self) -> None:
        """The load changes. A comparison says nothing then; it comes again, the dear kind later each time."""
        if not self.trying:
            return
        if not self.speculates:
            self._put_off()
        self.trying, self.rounds = False, self._gap // 2

    def observe(
        self,
        tokens: float,
        prompts: float,
        seconds: float,
        *,
        is_late: bool | None,
        is_counted: bool,
    ) -> None:
        """See `Governor.observe`."""
        if is_late is not None:
            self.late = max(self.late + (1 if is_late else -IN_TIME_WORTH), 0)
        if self.speculates and not self.trying and self.late >= LATE_ROUNDS:
            self._give_up()
            return
        if seconds <= 0.0:
            return
        if self.trying:
            self.bill.observe(tokens, prompts, seconds)
            if not self.speculates and self._is_too_dear:
                self._end_trial(is_won=False)
                return
        if not is_counted:
            return
        self.rounds += 1
        counted = self.rounds - SETTLING_ROUNDS
        if counted <= 0:
            return
        if self.trying:
            self.there.observe(tokens, prompts, seconds)
            if counted >= self._comparison:
                self._compare()
            return
        self.here.observe(tokens, prompts, seconds)
        if counted >= self._gap:
            self.trying, self.rounds = True, 0
            self.there, self.bill = Pace(), Bill()
            if not self.speculates:
                self.late = 0

    @property
    def _first_plain_gap(self) -> int:
        if self.size >= CROWD:
            return CROWD_ROUNDS
        return max(FIRST_PLAIN_GAP >> self.size, LEAST_GAP)

    @property
    def _first_trial_gap(self) -> int:
        return FIRST_CROWD_TRIAL_GAP if self.size >= CROWD else FIRST_TRIAL_GAP

    @property
    def _gap(self) -> int:
        return self.plain_gap if self.speculates else self.trial_gap

    @property
    def _comparison(self) -> int:
        """Rounds of the mode that is being tried."""
        if self.size >= CROWD:
            return CROWD_ROUNDS
        if self.speculates:
            return PLAIN_ROUNDS
        return max(TRIAL_ROUNDS >> self.size, LEAST_TRIAL_ROUNDS)

    @property
    def _is_too_dear(self) -> bool:
        """Whether the running trial has lost what a trial may lose."""
        most = max(MOST_LOST, MOST_LOST_SHARE * self.trial_gap)
        return self.bill.lost_rounds(self.here) > most

    def _compare(self) -> None:
        """Ends a comparison: the faster mode goes on."""
        margin = CROWD_MARGIN if self.size >= CROWD else 1.0
        if self.speculates:
            self._judge_speculation(self.there.seconds_of(self.here) / self.here.seconds / margin)
            self._begin_anew()
            return
        is_faster = self.here.seconds_of(self.there) >= WORTH_WAKING * margin * self.there.seconds
        # Faster by chance, if no candidate was in time.
        self._end_trial(is_won=is_faster and self.late < self._comparison)

    def _end_trial(self, *, is_won: bool) -> None:
        """Goes on with plain decoding or not."""
        if is_won:
            self._put_off()
            self.speculates, self.is_warned = True, False
            self.plain_gap = self._first_plain_gap
        else:
            self._put_off(self.bill.gap(self.here, TRIAL_SHARE))
        self._begin_anew()

    def _begin_anew(self) -> None:
        """The mode that won goes on, and is measured from here on."""
        self.trying, self.rounds = False, 0
        self.here = Pace()

    def _judge_speculation(self, ratio: float) -> None:
        """Goes on with it or not.

        Args:
            ratio: Its pace over the one that it must have.
        """
        if ratio >= 1.0:
            is_clear = ratio >= CLEARLY
            if is_clear and self.plain_gap >= self.trial_gap:
                self.trial_gap = self._first_trial_gap
            grown = PLAIN_GAP_GROWTH * (self.plain_gap if is_clear else self._first_plain_gap)
            self.plain_gap, self.is_warned = min(grown, LAST_PLAIN_GAP), False
        elif not self.is_warned and ratio >= 1.0 - DOUBT / 2.0 ** (self.size / 2.0):
            self.is_warned, self.plain_gap = True, self._first_plain_gap
        else:
            self.speculates, self.is_warned = False, False

    def _put_off(self, least: int = 0) -> None:
        """The next trial comes later than this one did."""
        longer = TRIAL_GAP_GROWTH * self.trial_gap
        self.trial_gap = min(max(longer, least), LAST_TRIAL_GAP)

    def _give_up(self) -> None:
        """Turns speculation off without a comparison."""
        self.trial_gap = max(self.trial_gap, FIRST_LATE_GAP)
        self.speculates = self.is_warned = False
        self.late = 0
        self._begin_anew()
