"""From logits to candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from outrider.actors.draft.calibration import Scoring
from outrider.actors.draft.candidates import CandidateChooser, scoring_of
from outrider.actors.speculation.noise import GumbelNoise
from outrider.actors.speculation.options import Sampling, Verifier

VOCAB_SIZE = 100
CPU = torch.device("cpu")
PLAIN = Sampling(seed=5, max_tokens=9, temperature=0.8)


@pytest.fixture
def logits_RV() -> torch.Tensor:
    return torch.randn(6, VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 3.0


def choose(
    logits_RV: torch.Tensor, sampling: Sampling, scoring: Scoring, width: int = 4
) -> list[list[int]]:
    """Token ids of the candidates of rows at positions 10, 11, ..."""
    num_rows = len(logits_RV)
    chooser = CandidateChooser(VOCAB_SIZE, CPU, width)
    rows = chooser.choose(
        logits_RV, [sampling] * num_rows, [scoring] * num_rows, range(10, 10 + num_rows)
    )
    return [[candidate.token for candidate in row] for row in rows]


def test_greedy_candidates_are_the_most_probable(logits_RV: torch.Tensor) -> None:
    """At temperature 0 the order is that of the logits."""
    sampling = replace(PLAIN, temperature=0.0)
    expected = logits_RV.topk(4).indices.tolist()
    assert choose(logits_RV, sampling, scoring_of(sampling, Verifier.COUPLED)) == expected


def test_coupled_candidates_are_the_likely_draws(logits_RV: torch.Tensor) -> None:
    """With the shared noise the first candidate is what the same model would draw there, and the rest its runners-up."""
    noise_RV = GumbelNoise(VOCAB_SIZE, CPU).rows(PLAIN.seed, 10, len(logits_RV))
    expected = (logits_RV / PLAIN.temperature + noise_RV).topk(4).indices.tolist()
    assert choose(logits_RV, PLAIN, Scoring.COUPLED) == expected
    assert choose(logits_RV, PLAIN, Scoring.BLIND) == logits_RV.topk(4).indices.tolist()
    assert choose(logits_RV, PLAIN, Scoring.COUPLED) != choose(logits_RV, PLAIN, Scoring.BLIND)


def test_rows_of_different_sessions_do_not_mix(logits_RV: torch.Tensor) -> None:
    """A batch of greedy, coupled and blind rows gives what each would give alone."""
    greedy = replace(PLAIN, temperature=0.0)
    other = replace(PLAIN, seed=77, temperature=1.3, top_k=3)
    samplings = [greedy, PLAIN, other, PLAIN, greedy, other]
    scorings = [Scoring.GREEDY, Scoring.COUPLED, Scoring.COUPLED] * 2
    scorings[3], scorings[4] = Scoring.BLIND, Scoring.GREEDY
    chooser = CandidateChooser(VOCAB_SIZE, CPU, 4)
    positions = [3, 1, 4, 1, 5, 9]
    together = chooser.choose(logits_RV, samplings, scorings, positions)
    for row in range(6):
        one = slice(row, row + 1)
        alone = chooser.choose(logits_RV[one], samplings[one], scorings[one], positions[one])
        assert together[row] == alone[0]


def test_truncation_is_followed(logits_RV: torch.Tensor) -> None:
    """Tokens that top-k, top-p or min-p exclude are no candidates; one is left always."""
    best = logits_RV.argmax(-1).tolist()
    for sampling in (
        replace(PLAIN, top_k=1),
        replace(PLAIN, top_p=1e-6),
        replace(PLAIN, min_p=1.0),
    ):
        assert choose(logits_RV, sampling, Scoring.COUPLED) == [[token] for token in best]
    two = choose(logits_RV, replace(PLAIN, top_k=2), Scoring.COUPLED)
    assert [set(row) for row in two] == [set(row) for row in logits_RV.topk(2).indices.tolist()]


def test_bias_is_followed(logits_RV: torch.Tensor) -> None:
    """A favoured token comes first, an excluded one never, and the logits are not written to."""
    before = logits_RV.clone()
    best = logits_RV.argmax(-1).tolist()
    favoured = choose(logits_RV, replace(PLAIN, logit_bias={42: 90.0}), Scoring.COUPLED)
    assert all(row[0] == 42 for row in favoured)
    excluded = choose(
        logits_RV, replace(PLAIN, temperature=0.0, logit_bias={best[0]: -100.0}), Scoring.GREEDY
    )
    assert best[0] not in excluded[0]
    assert torch.equal(before, logits_RV)


@pytest.mark.parametrize("vocab_size", [1, 2, 5])
def test_a_vocabulary_may_be_smaller_than_the_width(vocab_size: int) -> None:
    """There are no more candidates than tokens."""
    chooser = CandidateChooser(vocab_size, CPU, 8)
    [row] = chooser.choose(torch.zeros(1, vocab_size), [PLAIN], [Scoring.COUPLED], [0])
    assert sorted(candidate.token for candidate in row) == list(range(vocab_size))


def test_scoring_follows_temperature_and_verifier() -> None:
    """Only coupled sampling shows the noise to drafters; temperature 0 has none."""
    assert scoring_of(PLAIN, Verifier.COUPLED) is Scoring.COUPLED
    assert scoring_of(PLAIN, Verifier.EXACT_MATCH) is Scoring.BLIND
    assert scoring_of(replace(PLAIN, temperature=0.0), Verifier.EXACT_MATCH) is Scoring.GREEDY
