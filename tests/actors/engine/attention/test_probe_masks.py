"""Masks and the windows that they are of."""

from __future__ import annotations

import pytest
import torch

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.probe.probe_masks import window_of

PAST, ROWS = 20, 4


def additive(visible_NS: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """As transformers' step-by-step attention takes it."""
    mask = torch.zeros(visible_NS.shape, dtype=dtype)
    return mask.masked_fill(~visible_NS, torch.finfo(dtype).min)[None, None]


def visible(window: int | None, past: int = PAST) -> torch.Tensor:
    """What rows see of a window."""
    positions = torch.arange(past, past + ROWS)[:, None]
    columns = torch.arange(past + ROWS)
    seen = columns <= positions
    return seen if window is None else seen & (columns > positions - window)


@pytest.mark.parametrize("window", [None, 1, 2, 16, PAST, PAST + ROWS - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_windows(window: int | None, dtype: torch.dtype) -> None:
    """Of any width that cuts something off the last row."""
    mask = additive(visible(window), dtype)
    assert window_of(mask, past=PAST, num_rows=ROWS) == window
    assert window_of(mask == 0, past=PAST, num_rows=ROWS) == window


def test_a_window_that_no_row_outgrows_is_none() -> None:
    """As wide as the last row's text."""
    mask = additive(visible(PAST + ROWS))
    assert window_of(mask, past=PAST, num_rows=ROWS) is None
    one = torch.zeros(1, 1, 1, 1)
    assert window_of(one, past=0, num_rows=1) is None
    assert window_of(None, past=0, num_rows=1) is None


def chunked(chunk: int) -> torch.Tensor:
    """What rows see of their chunk."""
    positions = torch.arange(PAST, PAST + ROWS)[:, None]
    columns = torch.arange(PAST + ROWS)
    return visible(None) & (columns // chunk == positions // chunk)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "later rows"),
        (additive(torch.ones(ROWS, PAST + ROWS, dtype=torch.bool)), "later rows"),
        (additive(chunked(16)), "neither everything before them nor a sliding window"),
        (additive(chunked(PAST)), "neither everything before them nor a sliding window"),
        (additive(chunked(PAST + ROWS - 1)), "neither everything"),
        (additive(visible(None)) + 0.5, "adds numbers of its own"),
        (additive(visible(None))[..., 1:], r"mask of shape \(1, 1, 4, 23\)"),
        (torch.cat([additive(visible(None)), additive(visible(8))], dim=1), "different rows"),
    ],
)
def test_other_masks_are_refused(mask: torch.Tensor | None, message: str) -> None:
    """With what they do."""
    with pytest.raises(UnsupportedModel, match=message):
        window_of(mask, past=PAST, num_rows=ROWS)
