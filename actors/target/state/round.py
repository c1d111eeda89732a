"""What a pass commits, in the sessions that draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.state.session_table import Bools

OWN: Final = -1
"""Stands for the number of a drafter where the target itself proposed a token, or drew it against all candidates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """The entries of a pass that committed something. One row each."""

    entries_E: Int64s
    """Their places in the pass."""

    rows_E: Int64s
    """Rows of the table."""

    tokens_ET: Int64s
    counts_E: Int64s
    """What was committed."""

    origins_ET: Int64s
    """Number of the drafter that proposed each, `OWN` for the target."""

    over_E: Bools
    """The text is over."""

    stopped_E: Bools
    """It ended with a stop token."""

    drawn_N: Bools
    """Which candidates of the pass were drawn."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all sessions."""
        return int(self.counts_E.sum())
