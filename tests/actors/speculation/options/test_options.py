"""What options say about themselves."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.options import MOST_INVERSE, Sampling


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.0, 1.0), (0.25, 4.0), (1.0, 1.0), (4.0, 0.25)]
)
def test_logits_are_multiplied_by_the_inverse_of_the_temperature(
    temperature: float, expected: float
) -> None:
    """At temperature 0 the most probable token is wanted, whatever the factor: it is 1."""
    sampling = Sampling(seed=1, max_tokens=1, temperature=temperature)
    assert sampling.inverse_temperature == expected


def test_the_coldest_products_are_numbers() -> None:
    """A temperature may be as small as a float can be; logits times its inverse are finite in float32."""
    coldest = Sampling(seed=1, max_tokens=1, temperature=5e-324).inverse_temperature
    assert coldest == MOST_INVERSE
    assert np.isfinite(np.float32(coldest) * np.float32(1e6))
