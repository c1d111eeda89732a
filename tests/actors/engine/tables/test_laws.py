"""Laws by name."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.engine.tables.trigram_laws import VOCAB_SIZE, check_law, law_table

TEMPERATURE = 0.8


@pytest.mark.parametrize(
    ("percent", "shares"),
    [(50, (0.50, 0.165, 0.082)), (70, (0.70, 0.154, 0.059)), (85, (0.85, 0.106, 0.026))],
)
def test_drafters_agree_as_often_as_the_name_says(
    percent: int, shares: tuple[float, float, float]
) -> None:
    """The target's draw is the drafter's first, second and third candidate that often, with shared noise."""
    target, draft = (
        law_table(name).log_probs.reshape(-1, VOCAB_SIZE) / TEMPERATURE
        for name in (f"agree{percent}", f"agree{percent}/draft")
    )
    noise = np.random.default_rng(0).gumbel(size=target.shape)
    drawn = (target + noise).argmax(axis=1)
    perturbed = draft + noise
    own = perturbed[np.arange(len(drawn)), drawn]
    ranks = (perturbed > own[:, None]).sum(axis=1)
    for rank, share in enumerate(shares):
        # Three standard deviations of 9,216 contexts.
        assert np.mean(ranks == rank) == pytest.approx(share, abs=0.016)


def test_same_name_same_law() -> None:
    """Drafters share a target, and differ in their errors."""
    first = law_table("agree70/draft").log_probs.copy()
    law_table.cache_clear()
    np.testing.assert_array_equal(first, law_table("agree70/draft").log_probs)
    assert not np.array_equal(first, law_table("agree70/draft-2").log_probs)
    np.testing.assert_array_equal(law_table("agree70").log_probs, law_table("agree50").log_probs)


@pytest.mark.parametrize("name", ["", "agree", "agree34", "agree96", "agree70/drafts", "other"])
def test_unknown_laws(name: str) -> None:
    """The message says which there are."""
    with pytest.raises(ValueError, match="agreeNN/draft for its drafter, NN from 35 to 95"):
        check_law(name)
