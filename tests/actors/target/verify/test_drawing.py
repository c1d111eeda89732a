"""The target's own draws."""

from __future__ import annotations

import pytest
import torch

from outrider.actors.speculation.sampling.draw import draw, margins
from outrider.actors.target.verify.drawing import draw_rows


def test_rows_at_once_are_drawn_like_one() -> None:
    """Token and margin are those of the plain functions: ties, rows with one possible token, and rows with none included."""
    generator = torch.Generator().manual_seed(5)
    for width in (1, 2, 17):
        scores_NV = torch.randn((300, width), generator=generator)
        scores_NV[:100] = torch.randint(-3, 3, (100, width), generator=generator).float()
        excluded_NV = torch.rand((300, width), generator=generator)
        scores_NV[excluded_NV < torch.linspace(0.0, 1.2, 300)[:, None]] = -torch.inf
        tokens_N, margins_N, bests_N = draw_rows(scores_NV.numpy().copy())
        assert tokens_N.tolist() == draw(scores_NV, None).tolist()
        assert bests_N.tolist() == scores_NV.amax(dim=1).tolist()
        if width > 1:
            expected_N = margins(scores_NV, None)
            assert torch.isinf(expected_N).any()
            assert (expected_N == 0.0).any()
            assert margins_N.tolist() == pytest.approx(expected_N.tolist())
