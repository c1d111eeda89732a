"""The draws of all rows of a pass, and the walks through all its trees, without asking the host in between.

On a CPU rows are drawn as walks reach them (`actors/target/verify/host_drawing.py`). On a device that works ahead of the host, each
of those draws would be a wait; so there every row is drawn, walks follow the draws on the device, and the host learns of both
in one transfer. Both give the same tokens: noise, scores and the rule of drawing are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """What was drawn at each row."""

    tokens_R: Tensor
    """int64; the least token id where several are best, token 0 where everything is excluded."""

    margins_R: Tensor
    """float32; by how much each beats the second best: infinite if only one token is possible, 0 if none is."""

    bests_R: Tensor
    """float32; its score."""


def draw_rows(scores_RV: Tensor, noise_DV: Tensor | None, noise_R: Tensor) -> Draws:
    """Draws a token at every row: `draw.draw` and `draw.margins` in one.

    Args:
        scores_RV: float32; -inf excludes.
        noise_DV: float32; None: no row has noise.
        noise_R: int64; which row of the noise each row takes.
    """
    perturbed_RV = scores_RV if noise_DV is None else scores_RV + noise_DV.index_select(0, noise_R)
    tokens_R = perturbed_RV.argmax(dim=1)
    tokens_R1 = tokens_R.unsqueeze(1)
    best_R = perturbed_RV.gather(1, tokens_R1).squeeze(1)
    second_R = perturbed_RV.scatter(1, tokens_R1, -torch.inf).amax(dim=1)
    margins_R = (best_R - second_R).masked_fill(best_R == -torch.inf, 0.0)
    return Draws(tokens_R=tokens_R, margins_R=margins_R, bests_R=best_R)


def walk_rows(
    drawn_R: Tensor, parents_R: Tensor, tokens_R: Tensor, roots_B: Tensor, steps: int
) -> Tensor:
    """Follows the draws down several trees at once.

    Args:
        drawn_R: int64; the token drawn at each row.
        parents_R: int64; the row of each row's parent; for a root the number of rows, R.
        tokens_R: int64; the token of each row's node; of roots any.
        roots_B: int64; the root's row of each tree.
        steps: Rows that a walk visits at most, at least 1.

    Returns:
        int64 (B, steps): the rows that each walk visits, from its root on; R once it has ended. Where siblings have equal
        tokens, the first is taken, as by `coupled.walk`.
    """
    num_rows = len(drawn_R)
    rows_R = torch.arange(num_rows, device=drawn_R.device)
    is_root_R = parents_R == num_rows
    drawn_at_parent_R = drawn_R.index_select(0, parents_R.masked_fill(is_root_R, 0))
    is_drawn_R = (drawn_at_parent_R == tokens_R) & ~is_root_R
    # At each row the child that was drawn, or R; walks that have ended stay at R.
    nexts = torch.full((num_rows + 1,), num_rows, device=drawn_R.device)
    nexts.scatter_reduce_(0, parents_R, rows_R.masked_fill(~is_drawn_R, num_rows), "amin")
    visited = [roots_B]
    for _ in range(steps - 1):
        visited.append(nexts.index_select(0, visited[-1]))
    return torch.stack(visited, dim=1)


def at_visited(values_R: Tensor, visited_BT: Tensor) -> Tensor:
    """Values of the visited rows, the last row's where a walk has ended. Shape (B, T), and that of a row's values."""
    return values_R[visited_BT.clamp(max=len(values_R) - 1)]
