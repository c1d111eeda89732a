"""The closed forms are what the verifiers do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import constant_models, static
from tests.actors.speculation.verifiers.checks import mean_accepted

from bench.verifiers.rates import (
    canonical_rate,
    coupled_rate,
    exact_match_rate,
    kseq_rate,
    recursive_rate,
)
from outrider.actors.speculation.trees.draft_tree import Replacement


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_rates_are_those_of_the_verifiers(seed: int, k: int) -> None:
    """By enumeration. Residual draws that a sibling holds come on top for kseq and canonical."""
    target, draft = np.random.default_rng(seed).dirichlet(np.ones(3), 2)
    models = constant_models(target.tolist(), draft.tolist())

    def measured(verifier: str) -> float:
        return mean_accepted(verifier, static(k), Replacement.WITH, models)

    matched, recursive = exact_match_rate(target, draft, k), recursive_rate(target, draft, k)
    assert matched == pytest.approx(measured("exact_match"))
    assert recursive == pytest.approx(measured("mcsd_with_replacement"))
    assert recursive == pytest.approx(measured("specinfer"))
    assert kseq_rate(target, draft, k) <= measured("kseq") + 1e-12
    assert canonical_rate(target, draft, k) == pytest.approx(measured("canonical"))


def test_coupled_rate_is_the_frequency_of_agreement() -> None:
    """Draws of two rows under the same noise, 40,000 times."""
    rng = np.random.default_rng(0)
    target, draft = rng.dirichlet(np.ones(5), 2)
    draft[4] = 0.0
    draft /= draft.sum()
    noise = rng.gumbel(size=(40_000, 5))
    with np.errstate(divide="ignore"):
        agree = (np.log(target) + noise).argmax(1) == (np.log(draft) + noise).argmax(1)
    error = 5.0 * np.sqrt(0.25 / len(noise))
    assert agree.mean() == pytest.approx(coupled_rate(target, draft), abs=error)
