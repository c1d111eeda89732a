"""The law of the drawn token: argmax(scores + noise) against the distribution that the options ask for.

Each test draws at many positions or under many seeds and compares frequencies with the float64 reference. A correct
implementation fails a test with probability 1e-6 over the choice of seeds (fixed here). The same test on wrong
implementations, the negative controls, rejects each at 1e-12: so it can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.speculation.goodness import MIN_P, chi_square_p, independence_p, uniform_p
from tests.actors.speculation.options import reference
from torch import Tensor

from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.draw import draw
from outrider.actors.speculation.sampling.transforms import SamplingTransform

CPU = torch.device("cpu")
NUM_DRAWS = 200_000
REJECTED = 1e-12
PLAIN = Sampling(seed=1, max_tokens=99)
LOGITS = (2.0, 1.5, 1.5, 1.0, 0.25, 0.0, -0.5, -1.0, -2.0, -3.5, -5.0, -7.0)
VOCAB = len(LOGITS)
EOS = (3,)
PROMPT = (0, 5)
OUTPUT = (1, 1, 4)

Ids = NDArray[np.int64]


@pytest.fixture(scope="module")
def noise_NV() -> Tensor:
    """Noise at many positions under one seed."""
    return GumbelNoise(VOCAB, CPU).rows(20, 0, NUM_DRAWS)


def target_scores(sampling: Sampling) -> Tensor:
    """The scores of the one row of all these tests, (1, V)."""
    session = SamplingTransform(
        sampling, vocab_size=VOCAB, prompt=PROMPT, eos_token_ids=EOS, device=CPU
    )
    session.commit(OUTPUT[:2])
    return session.apply(torch.tensor([LOGITS]), [OUTPUT[2:]], [len(OUTPUT)])


def target_probs(sampling: Sampling) -> NDArray[np.float64]:
    """What the options ask for in that row."""
    return reference.target_probs(np.array(LOGITS), sampling, prompt=PROMPT, output=OUTPUT, eos=EOS)


def frequencies(ids: Tensor) -> Ids:
    """How often each token was drawn."""
    return np.bincount(ids.numpy(), minlength=VOCAB).astype(np.int64)


@pytest.mark.parametrize(
    "sampling",
    [
        PLAIN,
        replace(PLAIN, temperature=0.5),
        replace(PLAIN, temperature=0.07),
        replace(PLAIN, temperature=2.5),
        replace(PLAIN, top_k=2),
        replace(PLAIN, top_k=5, temperature=1.4),
        replace(PLAIN, top_p=0.8),
        replace(PLAIN, top_k=6, top_p=0.9, temperature=0.8),
        replace(PLAIN, min_p=0.2),
        replace(PLAIN, repetition_penalty=1.5),
        replace(PLAIN, presence_penalty=0.7, frequency_penalty=0.3),
        replace(PLAIN, logit_bias={0: -100.0, 9: 5.0}),
        replace(PLAIN, min_tokens=4, stop_token_ids=(2,)),
        replace(
            PLAIN,
            temperature=0.9,
            top_k=9,
            top_p=0.97,
            min_p=0.02,
            repetition_penalty=1.1,
            presence_penalty=-0.2,
            frequency_penalty=0.1,
            logit_bias={11: 6.0},
            min_tokens=4,
        ),
    ],
)
def test_drawn_tokens_follow_the_distribution_asked_for(
    sampling: Sampling, noise_NV: Tensor
) -> None:
    """For each option alone, and for all of them together."""
    drawn = frequencies(draw(target_scores(sampling), noise_NV))
    assert chi_square_p(drawn, target_probs(sampling)) > MIN_P


def test_drawn_tokens_follow_the_distribution_over_seeds() -> None:
    """At one position, requests with consecutive seeds are as good as independent."""
    noise = GumbelNoise(VOCAB, CPU)
    ids = draw(target_scores(PLAIN), noise.rows_many(range(NUM_DRAWS), [31] * NUM_DRAWS))
    assert chi_square_p(frequencies(ids), target_probs(PLAIN)) > MIN_P
    assert independence_p(ids[:-1].numpy(), ids[1:].numpy(), VOCAB) > MIN_P


def test_draws_at_different_positions_are_independent(noise_NV: Tensor) -> None:
    """Neighbours, and positions a block apart."""
    ids = draw(target_scores(PLAIN), noise_NV).numpy()
    for distance in (1, 2, 16):
        assert independence_p(ids[:-distance], ids[distance:], VOCAB) > MIN_P


def test_wide_rows_follow_their_distribution() -> None:
    """4096 tokens of very unequal probability, down to ones that are hardly ever drawn."""
    vocab_size, num_draws = 4096, 30_000
    logits_1V = torch.randn(1, vocab_size, generator=torch.Generator().manual_seed(8)) * 3
    noise = GumbelNoise(vocab_size, CPU)
    blocks = [draw(logits_1V, noise.rows(6, at, 1000)) for at in range(0, num_draws, 1000)]
    drawn = np.bincount(torch.cat(blocks).numpy(), minlength=vocab_size).astype(np.int64)
    exact = reference.probabilities(logits_1V[0].numpy().astype(np.float64))
    assert chi_square_p(drawn, exact) > MIN_P


def test_rare_tokens_are_drawn_as_often_as_they_should() -> None:
    """A token of probability 1.2e-4: the tail of the noise, where a coarse table or hash would show."""
    scores_1V = torch.tensor([[0.0, -9.0]])
    ids = draw(scores_1V, GumbelNoise(2, CPU).rows(3, 0, 600_000))
    probs = reference.probabilities(np.array([0.0, -9.0]))
    assert chi_square_p(np.bincount(ids.numpy(), minlength=2), probs) > MIN_P


def reused_noise(noise_NV: Tensor) -> Tensor:
    """The noise of every even position serves the next one too."""
    return noise_NV[::2].repeat_interleave(2, dim=0)


def uniform_noise(noise_NV: Tensor) -> Tensor:
    """Uniform numbers instead of Gumbel noise."""
    return torch.exp(-torch.exp(-noise_NV))


def negated_noise(noise_NV: Tensor) -> Tensor:
    """Gumbel noise with the wrong sign."""
    return -noise_NV


def logistic_noise(noise_NV: Tensor) -> Tensor:
    """One logarithm forgotten its way: ln(u) - ln(1 - u)."""
    return torch.logit(torch.exp(-torch.exp(-noise_NV.double()))).float()


def shared_noise(noise_NV: Tensor) -> Tensor:
    """Neighbouring tokens share their noise."""
    return noise_NV[:, torch.arange(VOCAB) // 2 * 2]


def clipped_noise(noise_NV: Tensor) -> Tensor:
    """No tail: as if the hash had eight bits."""
    return noise_NV.clamp(max=6.2)


@pytest.mark.parametrize("wrong", [uniform_noise, negated_noise, logistic_noise, shared_noise])
def test_wrong_noise_is_noticed(wrong: Callable[[Tensor], Tensor], noise_NV: Tensor) -> None:
    """Negative controls: each of these draws from some other distribution."""
    drawn = frequencies(draw(target_scores(PLAIN), wrong(noise_NV)))
    assert chi_square_p(drawn, target_probs(PLAIN)) < REJECTED


def test_clipped_noise_is_noticed() -> None:
    """Negative control for the tail: tokens of probability 2e-4 never win."""
    scores_1V = torch.tensor([[0.0, -8.5]])
    noise_NV = clipped_noise(GumbelNoise(2, CPU).rows(5, 0, 400_000))
    probs = reference.probabilities(np.array([0.0, -8.5]))
    drawn = np.bincount(draw(scores_1V, noise_NV).numpy(), minlength=2)
    assert chi_square_p(drawn, probs) < REJECTED


def test_reused_noise_is_noticed(noise_NV: Tensor) -> None:
    """Negative control: the frequencies may be right, the pairs are not."""
    ids = draw(target_scores(PLAIN), reused_noise(noise_NV)).numpy()
    assert independence_p(ids[:-1], ids[1:], VOCAB) < REJECTED


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        (PLAIN, replace(PLAIN, temperature=0.95)),
        (replace(PLAIN, temperature=0.7), PLAIN),
        (replace(PLAIN, top_k=5), replace(PLAIN, top_k=6)),
        (replace(PLAIN, top_p=0.8), replace(PLAIN, top_p=0.9)),
        (replace(PLAIN, min_p=0.2), replace(PLAIN, min_p=0.1)),
        (replace(PLAIN, repetition_penalty=1.5), PLAIN),
        (replace(PLAIN, presence_penalty=0.5), replace(PLAIN, frequency_penalty=0.5)),
        (replace(PLAIN, min_tokens=4), PLAIN),
        (replace(PLAIN, logit_bias={9: 1.0}), PLAIN),
    ],
)
def test_wrong_options_are_noticed(asked: Sampling, done: Sampling, noise_NV: Tensor) -> None:
    """Negative controls: an option that is ignored or slightly off shows in the frequencies."""
    drawn = frequencies(draw(target_scores(done), noise_NV))
    assert chi_square_p(drawn, target_probs(asked)) < REJECTED


def test_flat_rows_are_drawn_evenly_among_what_the_filters_keep() -> None:
    """All logits equal: top-k keeps the lowest ids, and each of these is as likely."""
    session = SamplingTransform(
        replace(PLAIN, top_k=100), vocab_size=4096, prompt=(), eos_token_ids=(), device=CPU
    )
    scores_1V = session.apply(torch.zeros(1, 4096), [()], [0])
    noise = GumbelNoise(4096, CPU)
    ids = torch.cat([draw(scores_1V, noise.rows(9, at, 1000)) for at in range(0, 20_000, 1000)])
    assert int(ids.max()) == 99
    assert uniform_p(np.bincount(ids.numpy(), minlength=100)) > MIN_P
