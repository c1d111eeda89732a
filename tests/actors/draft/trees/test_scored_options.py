"""Bias, top-k, top-p and min-p of many sessions at once, against loops over tokens."""

from __future__ import annotations

import math
import random

import numpy as np
import torch

from outrider.actors.draft.trees.calibration import Scoring
from outrider.actors.draft.trees.restrictions import is_restricted, restrict_
from outrider.actors.draft.trees.token_places import Places
from outrider.actors.speculation.options import Sampling

VOCAB_SIZE = 40


def random_options(rng: random.Random) -> Sampling:
    """Any of the options, or none."""
    bias = {
        token: rng.choice([-100.0, -3.0, 2.0])
        for token in rng.sample(range(VOCAB_SIZE), rng.choice([0, 2]))
    }
    return Sampling(
        seed=1,
        max_tokens=9,
        temperature=rng.choice([0.0, 0.5, 1.0]),
        logit_bias=bias,
        top_k=rng.choice([0, 0, 1, 5]),
        top_p=rng.choice([1.0, 1.0, 0.3, 0.8]),
        min_p=rng.choice([0.0, 0.0, 0.1]),
    )


def plain(scores: list[float], logits: list[float], sampling: Sampling) -> list[float]:
    """What the options make of a row's scores."""
    scale = 1.0 / sampling.temperature if sampling.temperature else 1.0
    bias = {
        token: -math.inf if value <= -100.0 else scale * value
        for token, value in sampling.logit_bias.items()
    }
    biased = [score + bias.get(token, 0.0) for token, score in enumerate(scores)]
    if not sampling.temperature:
        return biased
    values = [logit * scale + bias.get(token, 0.0) for token, logit in enumerate(logits)]
    weights = [math.exp(value - max(values)) for value in values]
    order = sorted(range(VOCAB_SIZE), key=lambda token: -weights[token])
    before = 0.0
    for rank, token in enumerate(order):
        share = weights[token] / sum(weights)
        out = bool(sampling.top_k) and rank >= sampling.top_k
        out = out or (sampling.top_p < 1.0 and before >= sampling.top_p)
        out = out or share < sampling.min_p * weights[order[0]] / sum(weights)
        if rank and out:
            biased[token] = -math.inf
        before += share
    return biased


def test_rows_of_many_sessions_are_what_each_would_be_alone() -> None:
    """Whatever the options of the others are."""
    rng = random.Random(0)
    for turn in range(200):
        options = [random_options(rng) for _ in range(rng.randint(1, 6))]
        generator = torch.Generator().manual_seed(turn)
        logits = torch.randn(len(options), VOCAB_SIZE, generator=generator) * 2.0
        scores = torch.randn(len(options), VOCAB_SIZE, generator=generator)
        greedy = [not one.temperature for one in options]
        places = Places(
            seeds_R=np.zeros(len(options), np.uint64),
            lengths_R=np.ones(len(options), np.int64),
            depths_R=np.zeros(len(options), np.int64),
            inverse_temperatures_R=np.array(
                [1.0 / one.temperature if one.temperature else 1.0 for one in options], np.float32
            ),
            scorings_R=np.where(greedy, int(Scoring.GREEDY), int(Scoring.COUPLED)),
            sessions_R=np.arange(len(options)),
            restricted={row: one for row, one in enumerate(options) if is_restricted(one)},
        )
        expected = [
            plain(own, of_own, one)
            for own, of_own, one in zip(scores.tolist(), logits.tolist(), options, strict=True)
        ]
        restrict_(scores, logits, places)
        torch.testing.assert_close(scores, torch.tensor(expected))
