"""What a draft worker did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
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
    feature_bytes: int = 0
    """Bytes of frames of features that came."""
    feature_rows: int = 0
    """Rows of them that the method was given."""
    features_late: int = 0
    """Those that came when the text had gone on."""
    features_doubled: int = 0
    """Rows that had come before."""
    features_missing: int = 0
    """Positions that were passed over: they begin like an earlier text, were computed before the drafter was there, or were dropped."""
    features_dropped: int = 0
    """Rows of another subscription, of sessions that never came, or that waited too long for their text."""
    features_broken: int = 0
    """Rows with numbers that are not finite, and frames that cannot be read."""

    def add(self, **changes: int) -> None:
        """Adds to the fields of these names."""
        for name, by in changes.items():
            setattr(self, name, getattr(self, name) + by)
