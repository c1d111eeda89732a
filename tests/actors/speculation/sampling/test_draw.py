"""The draw: greatest perturbed score, first among equals, and the margin to the second."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.actors.speculation.sampling.draw import draw, margins

INF = float("inf")


def test_draw_takes_the_greatest_sum() -> None:
    """The noise decides between near scores, not against a large gap."""
    scores_NV = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 20.0]])
    noise_NV = torch.tensor([[3.0, 0.5, 0.0], [3.0, 0.5, 0.0]])
    assert draw(scores_NV, noise_NV).tolist() == [0, 2]
    assert draw(scores_NV, None).tolist() == [2, 2]


@pytest.mark.parametrize("vocab_size", [2, 33, 4096, 70_000])
def test_draw_takes_the_first_among_equals(vocab_size: int) -> None:
    """Wherever the equal scores are, and however wide the row."""
    scores_NV = torch.zeros(3, vocab_size)
    scores_NV[1, vocab_size // 2 :] = 1.0
    scores_NV[2, -1] = 1.0
    assert draw(scores_NV, None).tolist() == [0, vocab_size // 2, vocab_size - 1]


def test_excluded_tokens_are_never_drawn() -> None:
    """-inf stays -inf whatever the noise."""
    scores_NV = torch.tensor([[-INF, -1e30, -INF]])
    noise_NV = torch.tensor([[22.0, -3.0, 22.0]])
    assert draw(scores_NV, noise_NV).tolist() == [1]


def test_margin_is_the_lead_over_the_second() -> None:
    """Of the perturbed scores; 0 for a tie."""
    scores_MV = torch.tensor([[1.0, 3.0, 2.5], [1.0, 1.0, 0.0]])
    assert margins(scores_MV, None).tolist() == [0.5, 0.0]
    assert margins(scores_MV, torch.tensor([[0.0, 0.0, 1.5]] * 2)).tolist() == [1.0, 0.5]
    assert margins(torch.tensor([[1.0, 4.0]]), None).tolist() == [3.0]


def test_margin_is_infinite_where_one_token_is_possible_and_zero_where_none_is() -> None:
    """Both without a not-a-number."""
    scores_MV = torch.tensor([[-INF, 3.0, -INF], [-INF, -INF, -INF]])
    assert margins(scores_MV, torch.ones(2, 3)).tolist() == [INF, 0.0]
    assert margins(torch.ones(2, 1), None).tolist() == [INF, INF]


def test_nothing_is_written_into_the_inputs() -> None:
    """Scores and noise are used again by others."""
    scores_NV, noise_NV = torch.rand(2, 5), torch.rand(2, 5)
    before = scores_NV.clone(), noise_NV.clone()
    draw(scores_NV, noise_NV)
    margins(scores_NV, noise_NV)
    assert torch.equal(scores_NV, before[0])
    assert torch.equal(noise_NV, before[1])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.floats(-9, 9, width=32), min_size=4, max_size=4), min_size=1))
def test_a_change_below_half_the_margin_keeps_the_draw(rows: list[list[float]]) -> None:
    """What the margin promises about rounding differences between batch shapes."""
    scores_NV = torch.tensor(rows, dtype=torch.float64)
    margins_N1 = margins(scores_NV, None).unsqueeze(1)
    signs_NV = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    shifted_NV = scores_NV + 0.49 * margins_N1 * signs_NV
    certain_N = margins_N1.squeeze(1) > 1e-9
    assert torch.equal(draw(shifted_NV, None)[certain_N], draw(scores_NV, None)[certain_N])
