"""Who drafts for the fewest texts: spreads the work, and learns nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.actors.speculation.selector_spec import DrafterOffer, SelectorSpec


class LeastBusy:
    """Who is at work stays."""

    def __init__(self, records: DrafterRecords) -> None:
        """Arguments: `BuildSelector`."""

    def ranked(self, offers: Sequence[DrafterOffer]) -> list[DrafterOffer]:
        """See `Selector`."""
        return sorted(offers, key=lambda offer: (not offer.is_at_work, offer.num_sessions))

    def observe(self, proposed: Mapping[str, int], committed: int) -> None:
        """See `Selector`."""


SPECS = (
    SelectorSpec(
        name="least_busy",
        build=LeastBusy,
        summary="the default: drafters that are alike share the texts",
    ),
)
