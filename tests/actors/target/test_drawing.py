"""The target's own draws."""

from __future__ import annotations

import pytest
import torch

from outrider.actors.speculation.sampling.draw import draw, margins
from outrider.actors.target.verify.drawing import draw_one


@pytest.mark.parametrize("has_noise", [False, True])
def test_fast_draw_is_the_draw(has_noise: bool) -> None:
    """Token and margin are those of the plain functions, ties and exclusions included."""
    generator = torch.Generator().manual_seed(5)
    for case in range(300):
        scores_1V = torch.randint(-3, 3, (1, 17), generator=generator).float()
        if case % 3 == 0:
            scores_1V = torch.randn((1, 17), generator=generator)
        scores_1V[torch.rand((1, 17), generator=generator) < 0.2] = -torch.inf
        noise_1V = torch.randn((1, 17), generator=generator) if has_noise else None
        token, margin = draw_one(scores_1V, noise_1V)
        assert token == int(draw(scores_1V, noise_1V)[0])
        assert margin == pytest.approx(float(margins(scores_1V, noise_1V)[0]))


def test_only_possible_token_has_an_infinite_margin() -> None:
    """Nothing can take its place."""
    scores_1V = torch.full((1, 5), -torch.inf)
    scores_1V[0, 3] = 0.5
    assert draw_one(scores_1V, None) == (3, float("inf"))


def test_nothing_possible_has_no_margin() -> None:
    """Everything excluded: token 0, decided by nothing."""
    assert draw_one(torch.full((1, 5), -torch.inf), None) == (0, 0.0)
