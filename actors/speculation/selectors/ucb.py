"""The drafter whose candidates are drawn most, found by trying: a bandit with upper confidence bounds.

Source: Kim, Jung, Yun 2026 (MetaSD), arXiv 2604.05417: one arm a drafter, and the arm with the greatest

    mean + exploration x sqrt(2 ln t / n)

drafts, where n counts the pulls of an arm and t all pulls (Auer, Cesa-Bianchi, Fischer 2002). What it reaches is judged by the passes that a text
takes: of B tokens in a row as many need none of their own as were candidates, so the reward of a stretch is the share of its tokens that the
drafter proposed. That is the paper's block efficiency over tokens in place of rounds; its other reward, the distance of two rows, would
send rows of the vocabulary across the network.

What differs. A pull is a stretch of text, not a round: drafters run ahead of several rounds, and another one reads the text first. Older
stretches count less, as in the discounted variant of the paper's appendix, since a text may change its kind. And a text does not begin from
nothing: what other texts told of a drafter counts for `prior` pulls at most, so a drafter that is known is not tried at the beginning of each answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from outrider.actors.speculation.drafter_records import (
    STRETCH_TOKENS,
    DrafterRecord,
    DrafterRecords,
)
from outrider.actors.speculation.number_options import NumberOption
from outrider.actors.speculation.selector_spec import DrafterOffer, SelectorSpec


def bound(mean: float, pulls: float, total: float, exploration: float) -> float:
    """What an arm may be worth at best; infinite for one that was never pulled.

    Args:
        mean: Of its rewards, 0 to 1.
        pulls: Its pulls.
        total: Pulls of all arms.
        exploration: Factor of the width; 0 believes the means.
    """
    if not pulls:
        return math.inf
    return mean + exploration * math.sqrt(2.0 * math.log(max(total, 1.0)) / pulls)


class Ucb:
    """One text."""

    def __init__(self, records: DrafterRecords, *, exploration: float, prior: float) -> None:
        """Arguments: `BuildSelector`, and the two options."""
        self._exploration = exploration
        self._most_told = prior * STRETCH_TOKENS
        self._told = records
        self._arms = DrafterRecords()

    def ranked(self, offers: Sequence[DrafterOffer]) -> list[DrafterOffer]:
        """See `Selector`. Of arms that are worth the same the one at work is first, then who is least busy."""
        arms = {offer.name: self._arm(offer.name) for offer in offers}
        pulls = {name: arm.committed / STRETCH_TOKENS for name, arm in arms.items()}
        total = sum(pulls.values())

        def place(offer: DrafterOffer) -> tuple[float, bool, int]:
            worth = bound(arms[offer.name].share, pulls[offer.name], total, self._exploration)
            return -worth, not offer.is_at_work, offer.num_sessions

        return sorted(offers, key=place)

    def observe(self, proposed: Mapping[str, int], committed: int) -> None:
        """See `Selector`."""
        for drafter in proposed:
            self._arm(drafter)
        self._arms.observe(proposed, committed)

    def _arm(self, drafter: str) -> DrafterRecord:
        """What is known of a drafter: what other texts told when it was first looked at here, and this text since."""
        if drafter not in self._arms:
            told = self._told[drafter]
            committed = min(told.committed, self._most_told)
            self._arms[drafter] = DrafterRecord(committed, told.share * committed)
        return self._arms[drafter]


SPECS = (
    SelectorSpec(
        name="ucb",
        build=Ucb,
        summary="drafters that are good at different texts: finds the best one for each, and has it draft alone",
        source="Kim et al. 2026, arXiv 2604.05417",
        at_work=1,
        options={
            "exploration": NumberOption(
                default=0.1, least=0.0, most=10.0, help="Factor of the confidence bound."
            ),
            "prior": NumberOption(
                default=2.0,
                least=0.0,
                most=100.0,
                help="Pulls for which other texts count, at most.",
            ),
        },
    ),
)
