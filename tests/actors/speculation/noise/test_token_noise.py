"""The noise of single tokens."""

from __future__ import annotations

import random

import pytest
import torch

from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.noise.token_noise import token_noise


def test_it_is_the_noise_that_the_target_adds() -> None:
    """For any seed, position and token, up to rounding."""
    noise = GumbelNoise(5000, torch.device("cpu"))
    generator = random.Random(1)
    for _ in range(50):
        seed, position = generator.getrandbits(64), generator.randrange(100_000)
        row_V = noise.rows(seed, position, 1)[0]
        for token in (0, 4999, generator.randrange(5000)):
            assert token_noise(seed, position, token) == pytest.approx(
                float(row_V[token]), abs=1e-5
            )


def test_the_greatest_noise_is_that_of_the_target_too() -> None:
    """Where a hash is small each step of it counts: the greatest of a million tokens."""
    noise_V = GumbelNoise(2**20, torch.device("cpu")).rows(1, 2, 1)[0]
    token = int(noise_V.argmax())
    assert token_noise(1, 2, token) == pytest.approx(float(noise_V[token]), abs=1e-5)
