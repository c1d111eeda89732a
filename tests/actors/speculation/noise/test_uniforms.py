"""The target's uniforms for verifiers: fixed by seed and position, spread evenly, unrelated to anything else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.actors.speculation.goodness import MIN_P, independence_p, kolmogorov_p

from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.noise.uniforms import uniforms

GOLDEN = [0.1722842235260369, 0.8921110455165526, 0.5712487865543766, 0.2129355477606829]


def test_golden_values() -> None:
    """What a seed promises does not change from version to version."""
    assert uniforms(2**63 + 11, 5, 4).tolist() == GOLDEN


def test_fewer_are_a_prefix_of_more() -> None:
    """The size of a tree does not move the decisions."""
    assert uniforms(3, 7, 50)[:9].tolist() == uniforms(3, 7, 9).tolist()


def test_they_are_uniform_and_unrelated() -> None:
    """Over positions, over seeds and within a round, values are even and neighbours independent."""
    within = uniforms(1, 1, 20_000)
    over_positions = np.concatenate([uniforms(1, position, 4) for position in range(5_000)])
    over_seeds = np.concatenate([uniforms(seed, 9, 4) for seed in range(5_000)])
    for values in (within, over_positions, over_seeds):
        assert values.min() >= 0.0
        assert values.max() < 1.0
        assert kolmogorov_p(values) > MIN_P
        bins = (values * 16).astype(np.int64)
        assert independence_p(bins[:-1], bins[1:], 16) > MIN_P
    first = np.array([uniforms(1, position, 1)[0] for position in range(20_000)])
    other = np.array([uniforms(2, position, 1)[0] for position in range(20_000)])
    bins = (first * 16).astype(np.int64)
    assert independence_p(bins[:-1], bins[1:], 16) > MIN_P
    assert independence_p(bins, (other * 16).astype(np.int64), 16) > MIN_P


def test_they_are_unrelated_to_the_noise_of_the_same_seed_and_position() -> None:
    """Plain draws and decisions of one session are independent."""
    noise = GumbelNoise(8, torch.device("cpu")).rows(5, 0, 20_000)[:, 3].double().numpy()
    noise_bins = (np.exp(-np.exp(-noise)) * 16).astype(np.int64).clip(0, 15)
    bins = np.array([int(uniforms(5, position, 1)[0] * 16) for position in range(20_000)])
    assert independence_p(noise_bins, bins, 16) > MIN_P
    assert independence_p(bins, bins, 16) < MIN_P


def test_wrong_seed_is_refused() -> None:
    """A seed is a 64-bit unsigned number."""
    with pytest.raises(ValueError, match="seed is -1"):
        uniforms(-1, 0, 1)
