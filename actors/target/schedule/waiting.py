"""When a pass begins: now, or after the next candidates.

A pass is worth what it commits less what the target would have committed in its time at its present pace. Waiting for w seconds
costs `pace x w` tokens. What it brings:

- a session without candidates gets them into this pass instead of the next one: `more = yield - 1 - what their rows cost`, and what its plain token
  would have made stale: `1 - hit` times the pass without candidates that follows a miss, `min(more, 1)`. Sessions are waited for in the order in
  which their answers are due;
- a session whose tree has survived the last verdict gets what drafters answer to that verdict: `open x (more - saved)`, where *open* is the
  probability that the text leaves its tree through a leaf, and *saved* what the answer is worth one pass later anyway;
- a session whose candidates fit one text only, as frozen trees do, and are drafted while passes run, loses the time that its tree has taken if it goes along
  without it: a token a pass, and the tree begins anew. It is *left out* of passes while `(yield - 1) x pass` is longer than what is left of the answer, half a pass more
  where passes of others run meanwhile; and these wait for it while what it loses by a pass's time, `yield x pass / (answer + pass)`, is more than what they lose;
- a session whose new tree is still coming in gets one level more: the value of its leaves times the rate at which a level hits, less what the rows
  cost.

The target waits exactly while the gain is more than the cost. It decides with each verdict, because it tells drafters how long it waits, and again once one
of them has answered. How long an answer takes is learned. One that is late is believed to take as long again as it has taken, so every wait ends. No wait is
longer than `gain / pace`: a wait in vain costs no more than it could have brought (the ski rental problem, Karlin et al. 1988).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.learning import Delay

SMALLEST_S = 5e-5
"""Seconds. Shorter waits are none: a thread does not wake up so precisely."""


Float64s = NDArray[np.float64]


@dataclass(slots=True)
class Waiting:
    """The decision, and what it has learned."""

    first: Delay = field(default_factory=Delay)
    """From a verdict to the first candidates below it, less what drafters held them back."""
    next: Delay = field(default_factory=Delay)
    """Between candidates while a new tree comes in."""
    last_s: float = 0.0
    """When the last candidates below a text came, in seconds of the worker's clock."""

    promised_s: float = 0.0
    """Until when the target waits, as it has told drafters, in seconds of the worker's clock: trees grow until then. 0: nothing was told, or
    a drafter has answered since."""

    def forget(self) -> None:
        """Forgets how long answers take."""
        self.first, self.next = Delay(), Delay()

    def first_s(self, gains_E: Float64s, elapsed_E: Float64s, pace: float) -> float:
        """How long to wait for the first candidates of sessions that have none: of those that are due soonest, as many as are
        worth it; 0: begin now.

        Args:
            gains_E: Tokens that each brings.
            elapsed_E: Seconds for which each has been due.
            pace: As of `left_s`.
        """
        gain, _, elapsed_s = self._best(gains_E, elapsed_E, pace)
        return self.left_s(gain, pace, self.first, elapsed_s)

    def _best(
        self, gains_E: Float64s, elapsed_E: Float64s, pace: float
    ) -> tuple[float, float, float]:
        """Of the answers that are due soonest, as many as are worth waiting for: what they bring, the seconds until all are there, and for how long the last
        of them has been due."""
        order = (-elapsed_E).argsort(kind="stable")
        gains_E, elapsed_E = gains_E[order].cumsum(), elapsed_E[order]
        latest_E = np.maximum.accumulate(self.first.lefts_s(elapsed_E))
        best = int((gains_E - pace * latest_E).argmax())
        return float(gains_E[best]), float(latest_E[best]), float(elapsed_E[best])

    def out_s(
        self,
        yields_E: Float64s,
        elapsed_E: Float64s,
        pass_s: float,
        *,
        is_busy: bool,
        most_s: float,
    ) -> Float64s:
        """For how long sessions whose candidates fit one text only are left out of passes; 0: they take part.

        Args:
            yields_E: Tokens that a pass over the candidates of each commits.
            elapsed_E: Seconds for which its candidates have been due.
            pass_s: Seconds of a pass.
            is_busy: Passes run meanwhile; the last of them is in the way for half its time.
            most_s: The longest time.
        """
        worth_E = np.minimum((yields_E - 1.0 - 0.5 * is_busy) * pass_s, most_s)
        left_E = worth_E - elapsed_E
        is_out_E = (self.first.lefts_s(elapsed_E) < worth_E) & (left_E > SMALLEST_S)
        return np.where(is_out_E, left_E, 0.0)

    def together_s(
        self,
        yields_E: Float64s,
        elapsed_E: Float64s,
        pass_s: float,
        *,
        pace: float,
        waited_s: float,
    ) -> float:
        """How long a pass that could begin still waits for sessions that it would leave out, each of which would lose the time of the pass; 0: begin now.

        Args:
            yields_E: As of `out_s`; so are the next two.
            elapsed_E: See there.
            pass_s: See there.
            pace: As of `left_s`.
            waited_s: Seconds for which it has waited so.
        """
        gain, latest_s, _ = self._best(
            yields_E * pass_s / (self.first.mean_s + pass_s), elapsed_E, pace
        )
        return _worth_s(gain, pace, takes_s=latest_s, waited_s=waited_s)

    def left_s(self, gain: float, pace: float, delay: Delay, elapsed_s: float) -> float:
        """How long to wait for an arrival; 0: begin now.

        Args:
            gain: Tokens that it brings.
            pace: Tokens that the target commits in a second, over all sessions; more than 0.
            delay: How long such take.
            elapsed_s: Seconds for which this one has been due.
        """
        return _worth_s(gain, pace, takes_s=delay.left_s(elapsed_s), waited_s=elapsed_s)


def _worth_s(gain: float, pace: float, *, takes_s: float, waited_s: float) -> float:
    """Seconds to wait for an arrival that still takes so long; 0 if it costs more than it brings.

    However wrong the belief is about when it comes, a wait is never longer than what comes is worth.
    """
    left_s = gain / pace - waited_s
    return left_s if gain > pace * takes_s and left_s > SMALLEST_S else 0.0
