"""What became of drafters' candidates: which share of the tokens each proposed while it was at work, later ones counting more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STRETCH_TOKENS: Final = 32
"""Tokens after which a choice is looked at again: some rounds, of which a change costs one or two."""

MEMORY_TOKENS: Final = 1500.0
"""Committed tokens after which what was seen counts for 1/e, whoever was at work. So what is known of a drafter that rests fades, and one that is
far worse is tried about once in a hundred stretches."""


@dataclass(slots=True)
class DrafterRecord:
    """Of one drafter."""

    committed: float = 0.0
    """Tokens that were committed while it was at work, faded."""

    proposed: float = 0.0
    """Those of them that were its candidates, faded as much."""

    @property
    def share(self) -> float:
        """Proposed over committed, 0 to 1; 0 where nothing is known."""
        return self.proposed / self.committed if self.committed else 0.0


class DrafterRecords(dict[str, DrafterRecord]):
    """By the drafter's name; of one that was never at work a record that says nothing."""

    def __missing__(self, drafter: str) -> DrafterRecord:
        record = self[drafter] = DrafterRecord()
        return record

    def observe(self, proposed: Mapping[str, int], committed: int) -> None:
        """Takes in a stretch of a text.

        Args:
            proposed: Of each drafter that was at work, tokens that were its candidates.
            committed: Tokens of the stretch.
        """
        kept = math.exp(-committed / MEMORY_TOKENS)
        for record in self.values():
            record.committed *= kept
            record.proposed *= kept
        for drafter, count in proposed.items():
            record = self[drafter]
            record.committed += committed
            record.proposed += count
