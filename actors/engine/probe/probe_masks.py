"""What a mask that transformers has built for some rows lets them see: everything before, or a window. Pure."""

from __future__ import annotations

import torch

from outrider.actors.engine.attention.attention import UnsupportedModel


def window_of(mask: torch.Tensor | None, *, past: int, num_rows: int) -> int | None:
    """The sliding window that a mask is of.

    Args:
        mask: Additive or boolean, shape (1, heads or 1, rows, past + rows). None: every row sees every other.
        past: Rows before the first of them, whose positions are 0, 1, ...
        num_rows: Rows that see; two or more tell a window from a chunk.

    Returns:
        Latest rows that each row sees, itself included; None where all see everything before them.

    Raises:
        UnsupportedModel: It is no causal mask with a window or without.
    """
    if mask is None:
        mask = torch.ones(1, 1, num_rows, past + num_rows, dtype=torch.bool)
    if mask.ndim != 4 or mask.shape[0] != 1 or mask.shape[2:] != (num_rows, past + num_rows):
        raise UnsupportedModel(
            f"has a mask of shape {tuple(mask.shape)} for {num_rows} rows behind {past}"
        )
    visible_HNS = _visible(mask)
    if not torch.equal(visible_HNS, visible_HNS[:1].expand_as(visible_HNS)):
        raise UnsupportedModel("lets its heads see different rows")
    visible_NS = visible_HNS[0]
    columns_S = torch.arange(past + num_rows, device=mask.device)
    positions_N = columns_S[past:]
    if (visible_NS & (columns_S > positions_N[:, None])).any():
        raise UnsupportedModel("lets rows see later rows (bidirectional attention)")
    first_N = visible_NS.int().argmax(dim=1)
    window = int(positions_N[-1] - first_N[-1]) + 1 if first_N[-1] > 0 else None
    oldest_N = (positions_N - (window or past + num_rows) + 1).clamp(min=0)
    if not torch.equal(
        visible_NS, (columns_S >= oldest_N[:, None]) & (columns_S <= positions_N[:, None])
    ):
        raise UnsupportedModel(
            f"shows {int(visible_NS[0].sum())} rows to the row at position {past} and "
            f"{int(visible_NS[-1].sum())} to that at {past + num_rows - 1}, which is neither everything before them nor "
            "a sliding window (attention in chunks does that)"
        )
    return window


def _visible(mask: torch.Tensor) -> torch.Tensor:
    """Which rows are seen. Shape (heads or 1, rows, columns)."""
    if mask.dtype == torch.bool:
        return mask[0]
    visible = mask == 0
    if not (visible | (mask <= torch.finfo(mask.dtype).min / 2)).all():
        raise UnsupportedModel(
            "adds numbers of its own to the scores of attention (a bias in the mask)"
        )
    return visible[0]
