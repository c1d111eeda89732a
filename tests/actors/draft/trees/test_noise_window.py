"""Noise that was made for an earlier pass is the noise that would be made now."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from outrider.actors.draft.trees import scoring
from outrider.actors.draft.trees.calibration import Scoring
from outrider.actors.draft.trees.noise_window import NoiseWindow
from outrider.actors.draft.trees.token_places import Places
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


def test_noise_of_a_position_is_made_once_or_twice() -> None:
    """Whatever depths the trees of others have; only what is deeper than the window is made anew each time."""

    class Counted(GumbelNoise):
        made = 0

        def of_pairs(self, seeds_R: np.ndarray, positions_R: np.ndarray) -> torch.Tensor:
            self.made += len(seeds_R)
            return super().of_pairs(seeds_R, positions_R)

    noise = Counted(VOCAB, torch.device("cpu"))
    window = NoiseWindow(noise, SESSIONS)
    sessions_R = np.arange(SESSIONS).repeat(4)
    for length in range(PASSES):
        offsets_R = np.array([0, 5, 9, 15, 0, 12, 24, 30, 0, 1, 1, 3])
        lengths_R = np.full(len(sessions_R), length)
        window.rows(sessions_R, sessions_R.astype(np.uint64), lengths_R, offsets_R)
    assert noise.made < 2 * SESSIONS * (PASSES + 32)


@pytest.mark.parametrize("cached_from", [1, VOCAB + 1])
def test_scores_have_the_noise_of_the_places_where_their_tokens_would_stand(
    monkeypatch: pytest.MonkeyPatch, cached_from: int
) -> None:
    """Counted from the beginning of the text, with many token ids and with few; rows that share no noise have none."""
    monkeypatch.setattr(scoring, "CACHED_FROM", cached_from)
    generator = np.random.default_rng(2)
    scorer = scoring.Scorer(VOCAB, torch.device("cpu"), 3, SESSIONS)
    noise = GumbelNoise(VOCAB, torch.device("cpu"))
    seeds = generator.integers(0, 2**63, SESSIONS).astype(np.uint64)
    for length in (5, 6, 9, 40, 7):
        sessions_R = np.array([0, 0, 1, 1, 1, 2])
        depths_R = generator.integers(0, 4, len(sessions_R))
        is_coupled_R = sessions_R != length % 4
        lengths_R = length + sessions_R
        places = Places(
            seeds_R=seeds[sessions_R],
            lengths_R=lengths_R,
            depths_R=depths_R,
            inverse_temperatures_R=np.full(len(sessions_R), 2.0, np.float32),
            scorings_R=np.where(is_coupled_R, int(Scoring.COUPLED), int(Scoring.GREEDY)),
            sessions_R=sessions_R,
            restricted={},
        )
        logits_RV = torch.from_numpy(generator.normal(size=(6, VOCAB)).astype(np.float32))
        own_RV = noise.of_pairs(seeds[sessions_R], (lengths_R + depths_R).astype(np.uint64))
        expected_RV = 2.0 * logits_RV + own_RV * torch.from_numpy(is_coupled_R)[:, None]
        torch.testing.assert_close(scorer.scores(logits_RV, places), expected_RV)
