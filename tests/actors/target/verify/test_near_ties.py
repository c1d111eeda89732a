"""Which draws count as near ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.actors.pair.pair import Pair

from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.verify.drawing import near_tie

TYPES = (torch.float32, torch.float16, torch.bfloat16)


def test_the_margin_fits_the_type() -> None:
    """Fewer bits, a wider margin: at least a unit in the last place of a logit of 16 each."""
    margins = [near_tie(dtype, 0.0) for dtype in TYPES]
    assert margins == sorted(margins)
    for dtype, margin in zip(TYPES, margins, strict=True):
        assert margin > 16 * torch.finfo(dtype).eps


def test_the_margin_is_of_scores() -> None:
    """A low temperature spreads the scores, and the rounding of the logits with them."""
    assert near_tie(torch.float32, 0.1) == pytest.approx(10 * near_tie(torch.float32, 1.0))
    assert near_tie(torch.float32, 0.0) == near_tie(torch.float32, 1.0)


@pytest.mark.parametrize(("gap", "ties"), [(2.0, 0), (0.5, 1)])
def test_a_draw_within_the_margin_is_counted(gap: float, ties: int) -> None:
    """Through the worker: two tokens that differ by more or less than what float32 may be wrong by."""
    log_probs = np.array([0.0, -1e-4 * gap, -30.0])
    table = replace(
        random_table(3, 0, seed=1), log_probs=log_probs - np.logaddexp.reduce(log_probs)
    )
    pair = Pair(table, table)
    greedy = Sampling(seed=1, max_tokens=1, temperature=0.0)
    pair.open(0, greedy, Speculation(enabled=False), is_attached=False)
    pair.run()
    assert pair.stats(0).near_ties == ties
