"""What a draft worker did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStats:
    """What a worker did since it started."""

    passes: int = 0
    """Units of drafting work."""
    messages: int = 0
    """Candidate messages sent."""
    nodes: int = 0
    """Candidate nodes sent, repeated ancestors included."""
    verdicts: int = 0
    """Verdicts that continued the text."""
    committed: int = 0
    """Tokens committed in sessions that were attached."""
    foreseen: int = 0
    """Those that were in the drafter's tree when their verdict arrived."""
    stale: int = 0
    """Verdicts and resyncs that said nothing new."""
    resyncs: int = 0
    """Times that missing tokens were asked for."""
    failures: int = 0
    """Drafting passes that raised."""


class Counts:
    """Counts up `DraftStats`."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(DraftStats.__dataclass_fields__, 0)

    @property
    def stats(self) -> DraftStats:
        """The statistics of this moment."""
        return DraftStats(**self._counts)

    def add(self, **changes: int) -> None:
        """Adds to the statistics of these names."""
        for name, by in changes.items():
            self._counts[name] += by
