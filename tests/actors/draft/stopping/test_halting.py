"""Which rows are drafted on below, while the tree grows and is cut."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NoReturn

from outrider.actors.draft.stopping.halting import ROOT, Halting
from outrider.actors.draft.stopping.lengths import ConfidenceLength, LengthPolicy


@dataclass
class Recorded:
    """A policy that says yes to what it is asked about, and remembers it."""

    asked: list[tuple[int, float, float]]

    def rater(self, scores_RV: object, /) -> NoReturn:
        """Not called here."""
        raise NotImplementedError

    def goes_on(self, *, depth: int, mean: float, last: float) -> bool:
        """Yes where the last rating is at least a half."""
        self.asked.append((depth, mean, last))
        return last >= 0.5

    def frozen_depth(self, rating: float, depth: int) -> int:
        """All."""
        return depth


def test_a_policy_is_asked_about_the_path_of_each_row() -> None:
    """Depth of the candidates, mean over the rows on their path, and the last of these."""
    policy = Recorded([])
    halting = Halting(policy)
    halting.begin(0.8)
    halting.add(ROOT, 0.4)
    halting.add(0, 0.6)
    assert policy.asked == [
        (1, 0.8, 0.8),
        (2, (0.8 + 0.4) / 2, 0.4),
        (3, (0.8 + 0.4 + 0.6) / 3, 0.6),
    ]
    assert [halting.goes_on(row) for row in (ROOT, 0, 1)] == [True, False, True]


def check_against_rebuild(policy: LengthPolicy, seed: int) -> None:
    """Any sequence of growth and cuts leaves what a fresh start would have."""
    rng = random.Random(seed)
    halting = Halting(policy)
    root = rng.random()
    halting.begin(root)
    rows: list[tuple[int, float]] = []
    for _ in range(60):
        if rows and rng.random() < 0.3:
            new_root = rng.randrange(len(rows))
            keep: list[int] = []
            for row, (parent, _) in enumerate(rows):
                if (parent == new_root or parent in keep) and rng.random() < 0.8:
                    keep.append(row)
            halting.reroot(new_root, keep)
            place = {new_root: ROOT, **{old: new for new, old in enumerate(keep)}}
            root, rows = rows[new_root][1], [(place[rows[r][0]], rows[r][1]) for r in keep]
        else:
            rows.append((rng.randint(-1, len(rows) - 1), rng.random()))
            halting.add(*rows[-1])
        fresh = Halting(policy)
        fresh.begin(root)
        for parent, rating in rows:
            fresh.add(parent, rating)
        every = range(-1, len(rows))
        assert [halting.goes_on(row) for row in every] == [fresh.goes_on(row) for row in every]


def test_cuts_leave_what_a_fresh_start_would_have() -> None:
    """Ratings stay with their rows, whatever these are called."""
    for seed in range(5):
        check_against_rebuild(ConfidenceLength(longest=4, aggressiveness=1.2), seed)
        check_against_rebuild(Recorded([]), seed)
