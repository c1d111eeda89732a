"""How long a free target waits for candidates of one session before it decodes plainly.

With E tokens expected from a pass over candidates and 1 - a of them lost by a miss, waiting w for candidates and then
running a pass yields E in w + T; running a plain pass now and the pass over candidates next yields E + 1 - a in 2 T. The
two rates are equal at w = T (E - (1 - a)) / (E + (1 - a)), which is the patience. It is only spent while candidates are
expected within it. Pure: times are passed in.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.8
"""Weight of the past in the running means: about five rounds."""


GRACE = 1.5
"""A part of a new tree may be this many times later than the mean before the target begins without it."""


RELUCTANCE = 1.0
"""A level must promise this many times what the target commits while it is waited for. Measured between 0.5 and 1.5 with the
shipped pair: the pace is the same within noise, the tokens of a pass fall above 1 and the waiting grows below."""


@dataclass(slots=True)
class Patience:
    """Running means of one session."""

    arrival_s: float = 0.0
    """Mean seconds from a verdict to the first candidates below it; 0 is hopeful, so that a first wait happens."""

    tokens: float = 2.5
    """Mean tokens of a pass over candidates."""

    acceptance: float = 0.7
    """Mean rate at which the first level holds the draw."""

    gap_s: float | None = None
    """Mean seconds between messages while a new tree comes in level by level; None before any was waited for."""

    def observe_arrival(self, seconds: float) -> None:
        """Takes in how long candidates took, or how long they were waited for in vain (counts double)."""
        self.arrival_s = MEMORY * self.arrival_s + (1.0 - MEMORY) * seconds

    def observe_gap(self, seconds: float) -> None:
        """Takes in how long the next part of a new tree took, or was waited for in vain."""
        former = self.gap_s if self.gap_s is not None else seconds
        self.gap_s = MEMORY * former + (1.0 - MEMORY) * seconds

    def ripening_s(self, leaves: float, pass_s: float) -> float:
        """Seconds to wait for the next level of a new tree; 0 if the target had better begin.

        Another level adds about `leaves x acceptance` tokens to the pass. It is worth waiting for if that is more than
        what the target commits in the meantime at its present pace.

        Args:
            leaves: Sum of the path probabilities of the tree's leaves.
            pass_s: Seconds of a pass over the tree.
        """
        # The first part took a message there, a draft pass and a message back; the next takes the pass.
        gap_s = self.gap_s if self.gap_s is not None else self.arrival_s / 2.0
        gain = leaves * self.acceptance
        pace = self.tokens / pass_s
        return GRACE * gap_s if gain > RELUCTANCE * gap_s * pace else 0.0

    def observe_round(self, tokens: int) -> None:
        """Takes in how many tokens a pass over candidates committed."""
        self.tokens = MEMORY * self.tokens + (1.0 - MEMORY) * tokens
        self.acceptance = MEMORY * self.acceptance + (1.0 - MEMORY) * (tokens > 1)

    def limit_s(self, pass_s: float) -> float:
        """Seconds after the verdict until which waiting is worth it; 0 if candidates are not expected in time.

        Args:
            pass_s: Seconds of a pass.
        """
        missed = 1.0 - self.acceptance
        limit = pass_s * max(self.tokens - missed, 0.0) / (self.tokens + missed)
        return limit if self.arrival_s <= limit else 0.0
