"""Noise that was made for an earlier pass is the noise that would be made now."""

from __future__ import annotations

import numpy as np
import torch

from outrider.actors.draft.trees.noise_window import NoiseWindow
from outrider.actors.speculation.noise.gumbel import GumbelNoise

VOCAB = 11
SESSIONS = 3
PASSES = 200


def test_rows_are_the_noise_of_their_seeds_and_positions() -> None:
    """Texts grow, jump, go back and end; depths are now and then more than a window holds."""
    generator = np.random.default_rng(1)
    noise = GumbelNoise(VOCAB, torch.device("cpu"))
    window = NoiseWindow(noise, SESSIONS)
    lengths = np.zeros(SESSIONS, np.int64)
    seeds = generator.integers(0, 2**63, SESSIONS).astype(np.uint64)
    for _ in range(PASSES):
        lengths += generator.integers(0, 6, SESSIONS)
        if generator.random() < 0.1:
            session = int(generator.integers(SESSIONS))
            lengths[session] = generator.integers(0, 100)
            seeds[session] = generator.integers(0, 2**63)
            window.forget(session)
        if generator.random() < 0.1:
            lengths[0] = max(lengths[0] - 9, 0)
        sessions_R = generator.integers(0, SESSIONS, generator.integers(1, 8))
        sessions_R.sort()
        offsets_R = generator.integers(0, generator.choice((3, 16, 50)), len(sessions_R))
        found = window.rows(sessions_R, seeds[sessions_R], lengths[sessions_R], offsets_R)
        positions_R = lengths[sessions_R] + offsets_R
        expected = noise.of_pairs(seeds[sessions_R], positions_R.astype(np.uint64))
        assert torch.equal(found, expected)
