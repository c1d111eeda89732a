"""The noise looks random in every direction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.actors.speculation.goodness import MIN_P, independence_p, kolmogorov_p, uniform_p
from torch import Tensor

from outrider.actors.speculation.noise.gumbel import GumbelNoise, key_halves
from outrider.actors.speculation.noise.seeds import mix_pair

CPU = torch.device("cpu")
VOCAB = 4096


@pytest.fixture(scope="module")
def noise() -> GumbelNoise:
    """Noise of a vocabulary as large as the demonstration models'."""
    return GumbelNoise(VOCAB, CPU)


def hashes(
    noise: GumbelNoise, seeds: list[int], positions: list[int]
) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """The 32 bits behind each noise value, (M, V)."""
    halves = torch.tensor(key_halves(seeds, positions), dtype=torch.int32)
    return noise.hashes(halves.view(2, -1)).numpy().view(np.uint32)


def uniforms(noise_values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The uniform numbers of which the noise is the Gumbel quantile."""
    return np.exp(-np.exp(-noise_values.numpy().astype(np.float64)))


def test_noise_never_increases_along_the_unsigned_hash(noise: GumbelNoise) -> None:
    """The hash orders tokens as the noise does, so the noise is a quantile function and not merely a fit."""
    hash_V = torch.from_numpy(
        np.sort(hashes(noise, [3] * 64, list(range(64))), axis=None).view(np.int32)
    )
    assert bool((noise.of_hashes(hash_V).diff() <= 0).all())


def test_hashes_are_uniform_in_high_bits_low_bits_and_tail(noise: GumbelNoise) -> None:
    """Every part of the hash is even: the tail matters most, since the greatest noise decides draws."""
    counts = np.zeros((4, 256), dtype=np.int64)
    for block in range(16):
        bits = hashes(noise, [block] * 500, list(range(500))).ravel()
        tail = bits[bits < 2**20]
        for row, part in enumerate((bits >> 24, bits & 255, (bits >> 12) & 255, tail >> 12)):
            counts[row] += np.bincount(part, minlength=256)
    assert counts[3].sum() > 256 * 20
    assert min(uniform_p(row) for row in counts) > MIN_P


def test_noise_follows_the_gumbel_law(noise: GumbelNoise) -> None:
    """Kolmogorov-Smirnov over one row, one token at all positions, one position under all seeds, and all."""
    count = 4000
    samples = (
        GumbelNoise(500_000, CPU).rows(1, 1, 1),
        noise.at(2, torch.arange(200_000), torch.full((200_000, 1), 17)),
        noise.at_many(list(range(200_000)), [5] * 200_000, torch.full((200_000, 1), 17)),
        noise.rows(3, 0, count)[:, ::40].contiguous(),
    )
    for sample in samples:
        assert kolmogorov_p(uniforms(sample)) > MIN_P


def pairs() -> dict[str, tuple[list[int], list[int], int]]:
    """What may be related: for each kind, seeds and positions of alternating rows, and a shift along the ids."""
    num = 200
    even = list(range(num))
    return {
        "next position": ([0] * num, even, 0),
        "positions 2^16 apart": ([0] * num, [n // 2 + (n % 2 << 16) for n in even], 0),
        "next seed": (even, [7] * num, 0),
        "seeds one bit apart": (
            [n // 2 * 2 ^ (n % 2 << (n // 2 % 63 + 1)) for n in even],
            [7] * num,
            0,
        ),
        "seed + 1, position - 1": (
            [n % 2 for n in even],
            [n // 2 * 3 + 1 - n % 2 for n in even],
            0,
        ),
        "seeds a golden ratio apart, position - 1": (
            [5 + (n % 2) * 0x9E3779B97F4A7C15 for n in even],
            [n // 2 * 3 + 1 - n % 2 for n in even],
            0,
        ),
        "seed's halves swapped": ([(n // 2 + 1) << (32 * (n % 2)) for n in even], [7] * num, 0),
        "next token": ([1] * num, even, 1),
        "tokens 2 apart": ([1] * num, even, 2),
        "tokens 64 apart": ([1] * num, even, 64),
        "tokens 1024 apart": ([1] * num, even, 1024),
        "next token at the next position": ([2] * num, even, 1),
    }


@pytest.mark.parametrize("kind", pairs())
def test_related_noise_is_independent(noise: GumbelNoise, kind: str) -> None:
    """Correlation, a table of joint frequencies, and joint extremes show nothing for related inputs."""
    seeds, positions, shift = pairs()[kind]
    bits = hashes(noise, seeds, positions)
    if shift and "position" not in kind:
        first, second = bits[:, :-shift], bits[:, shift:]
    else:
        first, second = bits[::2, : VOCAB - shift], bits[1::2, shift:]
    first, second = first.ravel().astype(np.int64), second.ravel().astype(np.int64)
    correlation = np.corrcoef(first, second)[0, 1] * np.sqrt(first.size)
    assert abs(correlation) < 5.3
    assert independence_p(first >> 27, second >> 27, 32) > MIN_P
    extremes = int(((first < 2**26) & (second < 2**26)).sum())
    expected = first.size / 64**2
    assert abs(extremes - expected) < 5.3 * np.sqrt(expected)


@pytest.mark.parametrize("what", ["seed", "position", "token id"])
def test_each_input_bit_flips_half_of_the_hash(noise: GumbelNoise, what: str) -> None:
    """Avalanche: over many cases, every bit of the input flips every bit of the hash half of the time."""
    bits = {"seed": 64, "position": 40, "token id": 12}[what]
    worst = 0.0
    num_rows = 16
    base_seeds = [mix_pair(11, row) for row in range(num_rows)]
    base_positions = [row * 37 for row in range(num_rows)]
    base = hashes(noise, base_seeds, base_positions)
    for bit in range(bits):
        flip = 1 << bit
        if what == "seed":
            other = hashes(noise, [seed ^ flip for seed in base_seeds], base_positions)
        elif what == "position":
            other = hashes(noise, base_seeds, [position ^ flip for position in base_positions])
        else:
            other = base[:, np.arange(VOCAB) ^ flip]
        changed = (base ^ other).ravel()
        flips = np.array([((changed >> place) & 1).sum() for place in range(32)], dtype=np.int64)
        # Pairs (token, flipped token) come twice, so half as many are independent.
        num = changed.size / (2 if what == "token id" else 1)
        worst = max(worst, float(np.abs(flips / changed.size - 0.5).max() * 2 * np.sqrt(num)))
    assert worst < 6.5


def test_greatest_noise_of_a_row_is_at_a_uniform_token() -> None:
    """The draw from a flat distribution of 4096 tokens is uniform and forgets the position before."""
    noise = GumbelNoise(VOCAB, CPU)
    blocks = [noise.rows(77, start, 1000).argmax(dim=-1) for start in range(0, 60_000, 1000)]
    drawn = torch.cat(blocks).numpy()
    assert uniform_p(np.bincount(drawn, minlength=VOCAB)) > MIN_P
    assert independence_p(drawn[:-1] // 128, drawn[1:] // 128, 32) > MIN_P
    assert independence_p(drawn[:-1] % 32, drawn[1:] % 32, 32) > MIN_P
