"""What a run of many requests amounts to."""

from __future__ import annotations

import pytest

from outrider.client.measuring.figures import (
    RequestSample,
    acceptance_by_depth,
    compare,
    differences,
    figures,
    first_difference,
    percentile,
    total_stats,
)
from outrider.client.messages.results import SpeculationStats


def sample(
    ids: tuple[int, ...], *, prompt: int = 0, total_s: float = 1.0, ties: int = 0
) -> RequestSample:
    """One request."""
    return RequestSample(
        prompt=prompt,
        category="c",
        seed=0,
        token_ids=ids,
        first_token_s=0.1,
        total_s=total_s,
        token_s=0.01,
        stats=SpeculationStats(near_ties=ties),
    )


def test_percentiles_lie_between_the_nearest_two() -> None:
    """As the usual linear rule says."""
    assert percentile([4.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.99) == pytest.approx(9.9)
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([], 0.5) is None


def test_totals_weigh_each_pass_alike() -> None:
    """The mean over sequences of different length is that over their passes."""
    total = total_stats(
        [
            SpeculationStats(
                rounds=9, plain_passes=1, mean_tokens_per_pass=3.0, reached_by_depth=(9, 4)
            ),
            SpeculationStats(rounds=30, mean_tokens_per_pass=2.0, reached_by_depth=(30,)),
        ]
    )
    assert total.mean_tokens_per_pass == pytest.approx((10 * 3 + 30 * 2) / 40)
    assert total.reached_by_depth == (39, 4)
    assert (total.rounds, total.plain_passes) == (39, 1)


def test_acceptance_by_depth_leaves_out_what_was_never_reached() -> None:
    """No division by a depth without rounds."""
    stats = SpeculationStats(reached_by_depth=(4, 2, 0), accepted_by_depth=(3, 1, 0))
    assert acceptance_by_depth(stats) == (0.75, 0.5)


def test_figures_of_nothing() -> None:
    """No request, no division by zero."""
    nothing = figures([], wall_s=0.0)
    assert (nothing.tokens_per_s, nothing.token_p50_s, nothing.acceptance) == (0.0, None, 0.0)


def test_first_difference() -> None:
    """The first position, or the shorter one's end."""
    assert first_difference((1, 2), (1, 2)) is None
    assert first_difference((1, 2), (1, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2


def test_comparison() -> None:
    """Equal outputs, differences with and without a near tie, and the ratio of rates."""
    plain = [sample((1, 2)), sample((1, 2), prompt=1), sample((1, 2), prompt=2)]
    fast = [
        sample((1, 2), total_s=0.5),
        sample((1, 3), prompt=1, total_s=0.5),
        sample((4, 2), prompt=2, total_s=0.5, ties=1),
    ]
    found = compare(plain, fast, plain_wall_s=3.0, speculative_wall_s=1.5)
    assert (found.pairs, found.equal, found.unexplained) == (3, 1, 1)
    assert [(d.prompt, d.position, d.near_tie) for d in found.differences] == [
        (1, 1, False),
        (2, 0, True),
    ]
    assert found.speed_up == pytest.approx(2.0)
    assert found.speed_up_by_category == {"c": pytest.approx(2.0)}


def test_runs_must_match() -> None:
    """Outputs of different prompts are not compared."""
    with pytest.raises(ValueError, match="prompt 0"):
        differences([sample((1,))], [sample((1,), prompt=1)])
