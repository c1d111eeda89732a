"""Top-k and top-p keep a prefix of the tokens by score, with every tie settled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.speculation.options.reference import order_of, probabilities
from torch import Tensor

from outrider.actors.speculation.sampling import filters
from outrider.actors.speculation.sampling.filters import keep_most_probable

INF = float("inf")


def kept(scores: list[float], *, top_k: int = 0, top_p: float = 1.0) -> list[int]:
    """Ids that survive in a single row."""
    filtered_1V = keep_most_probable(torch.tensor([scores]), top_k=top_k, top_p=top_p)
    return (filtered_1V[0] > -INF).nonzero().flatten().tolist()


def log(*probs: float) -> list[float]:
    """Scores of given probabilities."""
    return torch.tensor(probs).log().tolist()


@pytest.mark.parametrize(
    ("scores", "top_k", "expected"),
    [
        ([1.0, 3.0, 2.0, 0.0], 2, [1, 2]),
        ([1.0, 1.0, 1.0, 1.0], 3, [0, 1, 2]),
        ([1.0, 2.0, 1.0, 1.0], 2, [0, 1]),
        ([0.0, 1.0, 2.0], 1, [2]),
        ([0.0, 1.0, 2.0], 3, [0, 1, 2]),
        ([0.0, 1.0, 2.0], 99, [0, 1, 2]),
        ([0.0, -INF, -INF, 2.0], 3, [0, 3]),
    ],
)
def test_top_k_keeps_exactly_k(scores: list[float], top_k: int, expected: list[int]) -> None:
    """Of equal scores at the threshold the lowest ids; fewer only if there are not so many tokens."""
    assert kept(scores, top_k=top_k) == expected


@pytest.mark.parametrize(
    ("scores", "top_p", "expected"),
    [
        (log(0.1, 0.5, 0.4), 0.5, [1]),
        (log(0.1, 0.5, 0.4), 0.55, [1, 2]),
        (log(0.1, 0.5, 0.4), 0.95, [0, 1, 2]),
        (log(0.1, 0.5, 0.4), 1e-9, [1]),
        ([0.0, 0.0, 0.0, 0.0], 0.5, [0, 1]),
        ([0.0, 0.0, 0.0, 0.0], 0.51, [0, 1, 2]),
        ([0.0, 0.0], 0.5 + 1e-9, [0, 1]),
        ([0.0, -1000.0], 1.0, [0, 1]),
        ([-INF, 0.0, 0.0, -INF], 0.9, [1, 2]),
        ([-INF, 0.0, -INF], 0.999999, [1]),
        ([0.0, 90.0], 0.999999, [1]),
    ],
)
def test_top_p_keeps_the_shortest_prefix(
    scores: list[float], top_p: float, expected: list[int]
) -> None:
    """At least one token; excluded ones never; equal ones by id."""
    assert kept(scores, top_p=top_p) == expected


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    """Half of .4 + .3 is reached by the first token, half of everything by two."""
    scores = log(0.4, 0.3, 0.2, 0.1)
    assert kept(scores, top_k=2, top_p=0.5) == [0]
    assert kept(scores, top_p=0.5) == [0, 1]
    assert kept([0.0, -1000.0, -2000.0], top_k=2, top_p=1.0) == [0, 1], (
        "all of it is all, likely or not"
    )


def test_rows_without_any_token_stay_empty() -> None:
    """Nothing is made finite, and no error is raised."""
    assert kept([-INF, -INF], top_k=1) == []
    assert kept([-INF, -INF], top_p=0.5) == []


def check_definition(scores_NV: Tensor, top_k: int, top_p: float) -> None:
    """Each row keeps, unchanged, a prefix of the order, as short as it may be, within rounding of the share."""
    before = scores_NV.clone()
    filtered_NV = keep_most_probable(scores_NV, top_k=top_k, top_p=top_p)
    assert torch.equal(scores_NV, before)
    for row, filtered in zip(scores_NV.numpy(), filtered_NV.numpy(), strict=True):
        kept_ids = np.flatnonzero(filtered > -INF)
        order = order_of(row.astype(np.float64))
        assert sorted(order[: len(kept_ids)]) == kept_ids.tolist()
        assert (filtered[kept_ids] == row[kept_ids]).all()
        num = min(top_k or len(row), len(row), int(np.isfinite(row).sum()))
        if top_p >= 1:
            assert len(kept_ids) == num
            continue
        probs = probabilities(row.astype(np.float64))[order[:num]]
        shares = np.concatenate(([0.0], np.cumsum(probs) / probs.sum()))
        assert 1 <= len(kept_ids) <= num
        assert shares[len(kept_ids)] >= top_p - 1e-6
        assert shares[len(kept_ids) - 1] < top_p + 1e-6


SCORES = st.one_of(
    st.integers(-20, 20).map(lambda value: value / 4),
    st.floats(-30, 30, width=32),
    st.just(-INF),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.integers(1, 12).flatmap(
        lambda size: st.lists(
            st.lists(SCORES, min_size=size, max_size=size).filter(lambda row: max(row) > -INF),
            min_size=1,
            max_size=4,
        )
    ),
    top_k=st.integers(0, 14),
    top_p=st.one_of(st.just(1.0), st.floats(1e-6, 1.0)),
)
def test_filters_keep_what_the_definition_says(
    rows: list[list[float]], top_k: int, top_p: float
) -> None:
    """On rows full of ties and excluded tokens."""
    check_definition(torch.tensor(rows, dtype=torch.float32), top_k, top_p)


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 0.999, 0.9999999])
@pytest.mark.parametrize("spread", [0.0, 0.05, 1.0, 8.0])
def test_top_p_on_wide_rows(spread: float, top_p: float) -> None:
    """Also where the first look at the most probable tokens is not enough."""
    generator = torch.Generator().manual_seed(3)
    scores_NV = torch.randn(4, 5000, generator=generator) * spread
    check_definition(scores_NV, 0, top_p)
    check_definition(scores_NV, 700, top_p)


def test_the_size_of_the_first_look_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a shortcut and nothing else."""
    scores_NV = (torch.randn(6, 900, generator=torch.Generator().manual_seed(5)) * 8).round() / 4
    expected = keep_most_probable(scores_NV, top_k=0, top_p=0.95)
    for look in (1, 2, 30, 900, 10_000):
        monkeypatch.setattr(filters, "_FIRST_LOOK", look)
        assert torch.equal(keep_most_probable(scores_NV, top_k=0, top_p=0.95), expected)


def test_the_share_is_counted_to_the_token() -> None:
    """Float32 would round the sum of one likely token and thousands of unlikely ones."""
    scores = [0.0, *[math.log(2.0**-26)] * 4000]
    whole = 2**40 + 4000 * 2**14
    assert kept(scores, top_p=(2**40 + 2002.5 * 2**14) / whole) == list(range(2004))
