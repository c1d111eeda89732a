"""What is told about a finished sequence: the target's own numbers, merged over re-openings, with the coordinator's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.internal.containers import RepeatedScalarFieldContainer

from outrider.v1 import generation_pb2

_SUMMED = (
    "rounds",
    "plain_passes",
    "proposed",
    "verified",
    "accepted",
    "stale",
    "near_ties",
    "candidate_messages",
    "wire_bytes",
)


class PartCounts:
    """What the coordinator itself sees of one opening of a session, for when the target cannot tell.

    A round without any accepted candidate looks like a plain pass from here, and candidates that were not drawn are
    not seen at all: these are lower bounds.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.accepted = 0
        self.rounds = 0
        self.plain_passes = 0

    def count(self, origins: list[int]) -> None:
        """Takes in one commit: the drafter that proposed each token, -1 for the target itself."""
        accepted = len(origins) - origins.count(-1)
        self.tokens += len(origins)
        self.accepted += accepted
        if accepted:
            self.rounds += 1
        else:
            self.plain_passes += 1

    def stats(self) -> generation_pb2.SpeculationStats:
        """The counts as statistics."""
        passes = self.rounds + self.plain_passes
        return generation_pb2.SpeculationStats(
            rounds=self.rounds,
            plain_passes=self.plain_passes,
            proposed=self.accepted,
            verified=self.accepted,
            accepted=self.accepted,
            mean_tokens_per_pass=self.tokens / passes if passes else 0.0,
        )


def merge_stats(
    parts: Iterable[generation_pb2.SpeculationStats],
) -> generation_pb2.SpeculationStats:
    """Statistics of a sequence that was opened several times: sums, and the mean over all passes."""
    merged = generation_pb2.SpeculationStats()
    tokens = 0.0
    for part in parts:
        for name in _SUMMED:
            setattr(merged, name, getattr(merged, name) + getattr(part, name))
        _add_depths(merged.reached_by_depth, part.reached_by_depth)
        _add_depths(merged.accepted_by_depth, part.accepted_by_depth)
        tokens += part.mean_tokens_per_pass * (part.rounds + part.plain_passes)
    passes = merged.rounds + merged.plain_passes
    merged.mean_tokens_per_pass = tokens / passes if passes else 0.0
    return merged


def merge_timing(
    parts: Iterable[generation_pb2.Timing], *, queue_s: float, first_token_s: float, total_s: float
) -> generation_pb2.Timing:
    """Times of a sequence: the target's, summed, and the coordinator's."""
    merged = generation_pb2.Timing(queue_s=queue_s, first_token_s=first_token_s, total_s=total_s)
    for part in parts:
        merged.prefill_s += part.prefill_s
        merged.draft_wait_s += part.draft_wait_s
        merged.verify_s += part.verify_s
    return merged


def _add_depths(totals: RepeatedScalarFieldContainer[int], counts: Sequence[int]) -> None:
    """Adds counts by depth to a repeated field, which grows as needed."""
    totals.extend([0] * (len(counts) - len(totals)))
    for depth, count in enumerate(counts):
        totals[depth] += count
