"""Statistics of a sequence."""

from __future__ import annotations

import pytest

from outrider.cluster.requests.statistics import PartCounts, merge_stats, merge_timing
from outrider.v1 import generation_pb2


def test_openings_are_summed_and_the_mean_is_over_all_passes() -> None:
    """Counts add up, by depth too, and the mean is weighted."""
    first = generation_pb2.SpeculationStats(
        rounds=3, plain_passes=1, accepted=4, reached_by_depth=[3, 2], mean_tokens_per_pass=2.0
    )
    second = generation_pb2.SpeculationStats(
        rounds=1, plain_passes=0, accepted=2, reached_by_depth=[1], mean_tokens_per_pass=3.0
    )
    merged = merge_stats([first, second])
    assert (merged.rounds, merged.plain_passes, merged.accepted) == (4, 1, 6)
    assert list(merged.reached_by_depth) == [4, 2]
    assert merged.mean_tokens_per_pass == pytest.approx(11 / 5)


def test_nothing_gives_zeros() -> None:
    """A sequence that was never opened has no passes to divide by."""
    assert merge_stats([]).mean_tokens_per_pass == 0.0
    assert PartCounts().stats().mean_tokens_per_pass == 0.0


def test_the_coordinator_counts_what_it_sees() -> None:
    """Tokens of drafters are accepted candidates; a commit without any looks like a plain pass."""
    counts = PartCounts()
    counts.count([0, 1, -1])
    counts.count([-1])
    stats = counts.stats()
    assert (stats.rounds, stats.plain_passes, stats.accepted) == (1, 1, 2)
    assert stats.mean_tokens_per_pass == 2.0


def test_times_of_the_target_are_summed() -> None:
    """The target's times add up over openings; the coordinator's are taken as they are."""
    part = generation_pb2.Timing(prefill_s=1.0, verify_s=2.0, draft_wait_s=0.5, total_s=99.0)
    merged = merge_timing([part, part], queue_s=0.1, first_token_s=0.2, total_s=7.0)
    assert (merged.prefill_s, merged.verify_s, merged.draft_wait_s) == (2.0, 4.0, 1.0)
    assert (merged.queue_s, merged.first_token_s, merged.total_s) == (0.1, 0.2, 7.0)
