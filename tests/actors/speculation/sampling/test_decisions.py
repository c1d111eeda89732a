"""Decisions from uniforms have the probabilities asked for and use each uniform once."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.sampling.random_acts import UniformDecisions, uniforms_needed

GRID = (np.arange(2000) + 0.5) / 2000


def test_accept_has_its_probability() -> None:
    """Over evenly spaced uniforms; 0 never, 1 always."""
    for probability, expected in ((0.0, 0.0), (0.3, 0.3), (1.0, 1.0), (1.7, 1.0)):
        share = np.mean([UniformDecisions([u]).accept(probability) for u in GRID])
        assert share == pytest.approx(expected, abs=1e-3)
    assert not UniformDecisions([0.0]).accept(0.0)


def test_draw_has_its_weights() -> None:
    """Also where they are not normalised; a weight of 0 is never drawn, not even at the ends."""
    weights = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    drawn = [UniformDecisions([u]).draw(weights) for u in [0.0, *GRID, np.nextafter(1.0, 0.0)]]
    assert set(drawn) == {1, 3}
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_draw_stays_within_the_weights(scale: float) -> None:
    """The greatest uniform does not fall off the end."""
    weights = np.array([0.1, 0.7, 0.2, 0.0]) * scale
    assert UniformDecisions([np.nextafter(1.0, 0.0)]).draw(weights) == 2
    assert UniformDecisions([0.5]).draw(weights[:2]) == 1


def test_draw_stays_within_the_least_weights() -> None:
    """Where the product with the total is rounded up to it: the last index that has weight."""
    assert UniformDecisions([0.9]).draw(np.array([0.0, 5e-324, 0.0])) == 1


@pytest.mark.parametrize("weights", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_draw_refuses_weights_without_a_sum(weights: list[float]) -> None:
    """Rather than giving some token."""
    with pytest.raises(ValueError, match="must sum to a positive number"):
        UniformDecisions([0.5]).draw(np.array(weights))


def test_uniforms_are_used_once_in_order() -> None:
    """And too few are an error."""
    decisions = UniformDecisions([0.1, 0.9])
    assert [decisions.accept(0.5), decisions.accept(0.5)] == [True, False]
    with pytest.raises(ValueError, match="all 2 uniforms are used up"):
        decisions.accept(0.5)


def test_uniforms_needed_grows_with_the_tree() -> None:
    """One draw even without a tree."""
    assert (uniforms_needed(0), uniforms_needed(4)) == (1, 13)
