"""How deep a draft model with exits should be run for a target, learned while serving. Pure.

The objective is the scheduler's: committed tokens a second. A deeper exit is right more often and takes longer, so which is best depends on
how long a pass of the target takes: a draft that is free beside a large target is late for a small one. With the acceptance *a* of candidates
below exit *k* at this target, *c* the time of a draft level that goes as deep as *k* where it is unsure, *T* a pass of the target and *r* the round
trip, exit *k* is worth the drafter's bound (`speculation/ideal.py`)

    E[L + 1] / E[min(L + 1, 1 + r/T + L c/T)]          L geometric with a

and the exit that is worth most is the deepest that sessions of this target may use. `c` adds up over the stages, each with the share of passes that
come to it, so a threshold that lets most tokens leave early makes depth cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from outrider.actors.draft.trees.forest import Float64s
from outrider.actors.speculation import learning
from outrider.actors.speculation.ideal import drafter_bound, geometric

PRIORS = (0.6, 0.75)
"""Acceptance of the first and of the last exit before anything is observed."""

EXPLORE_EVERY = 16
"""Of so many verdicts of a target one is followed with another exit than the best, each in turn, so that all acceptances are known. It costs a
sixteenth of the difference."""

MOST = 0.98
"""Acceptance that is believed, at most."""

LONGEST = 64
"""Tokens of a run, at most."""


@dataclass(slots=True, eq=False)
class _OfTarget:
    hits_X: Float64s
    tries_X: Float64s
    verdicts: int = 0
    explored: int = field(default=0)


class ExitChoice:
    """Of one drafter. X exits; targets are told apart by their links."""

    def __init__(self, num_exits: int) -> None:
        """Knows nothing yet."""
        self._num = num_exits
        self._targets: dict[int, _OfTarget] = {}
        self._rest_s = 0.0
        """Of a pass, outside the model."""
        self._stages_s: list[float] = [0.0] * num_exits
        """Of each stage, when it is run; 0: it never was."""
        self._shares: list[float] = [1.0] * num_exits
        """Of the passes that may come to a stage, those that do."""

    def took(self, seconds: float, stages_s: list[float], deepest: int) -> None:
        """Takes in a pass that grew trees.

        Args:
            seconds: In all.
            stages_s: Of each stage; 0 if it was not run.
            deepest: Index of the deepest exit that any of its sessions might use.
        """
        self._rest_s = _mean(self._rest_s, max(seconds - sum(stages_s), 0.0))
        for stage in range(deepest + 1):
            was_run = stages_s[stage] > 0.0
            self._shares[stage] += (1.0 - learning.PASSES) * (was_run - self._shares[stage])
            if was_run:
                self._stages_s[stage] = _mean(self._stages_s[stage], stages_s[stage])

    def learn(self, link: int, exit_: int, hits: int, tries: int) -> None:
        """Takes in how many of a target's draws were among the candidates there, drafted as deep as an exit."""
        target = self._of(link)
        kept = learning.DRAWS**tries
        target.hits_X[exit_] = kept * target.hits_X[exit_] + hits
        target.tries_X[exit_] = kept * target.tries_X[exit_] + tries

    def acceptance(self, link: int) -> Float64s:
        """Believed of each exit. Shape (X,)."""
        target = self._of(link)
        known_X = learning.PRIOR_DRAWS * np.linspace(*PRIORS, self._num) + target.hits_X
        return np.minimum(known_X / (learning.PRIOR_DRAWS + target.tries_X), MOST)

    def level_s(self, exit_: int) -> float:
        """Seconds of a draft level that may go as deep as an exit. A stage that was never run is believed to take as long as the first."""
        stages = zip(self._stages_s[: exit_ + 1], self._shares, strict=False)
        first_s = self._stages_s[0]
        return self._rest_s + sum(share * (took_s or first_s) for took_s, share in stages)

    def best(self, link: int, *, pass_s: float, round_trip_s: float) -> int:
        """Index of the deepest exit that is worth its time for a target; the last, if the target has not said how long its passes take."""
        if pass_s <= 0.0 or self._num == 1:
            return self._num - 1
        worth = [
            drafter_bound(
                geometric(float(acceptance), longest=LONGEST),
                draft_cost=self.level_s(exit_) / pass_s,
                round_trip=round_trip_s / pass_s,
            )
            for exit_, acceptance in enumerate(self.acceptance(link))
        ]
        return int(np.argmax(worth))

    def after_verdict(self, link: int, *, pass_s: float, round_trip_s: float) -> tuple[int, bool]:
        """The exit for what is drafted next, and whether that is to learn about it rather than the best."""
        target = self._of(link)
        target.verdicts += 1
        if self._num > 1 and target.verdicts % EXPLORE_EVERY == 0:
            target.explored = (target.explored + 1) % self._num
            return target.explored, True
        return self.best(link, pass_s=pass_s, round_trip_s=round_trip_s), False

    def keep_only(self, links: set[int]) -> None:
        """Forgets the other targets."""
        for link in self._targets.keys() - links:
            del self._targets[link]

    def _of(self, link: int) -> _OfTarget:
        known = self._targets.get(link)
        if known is None:
            known = self._targets[link] = _OfTarget(np.zeros(self._num), np.zeros(self._num))
        return known


def _mean(before: float, now: float) -> float:
    return now if before == 0.0 else learning.PASSES * before + (1.0 - learning.PASSES) * now
