"""Muon for the hidden matrices, AdamW for the embedding and the norms, as one optimiser."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MATRIX_DECAY = 0.02
OTHER_BETAS = (0.9, 0.95)


class Optimizer:
    """Both optimisers behind one step.

    Muon (Jordan et al. 2024) orthogonalises the momentum of a matrix; it is meant for hidden
    layers only, hence the split.
    """

    def __init__(self, model: nn.Module, matrix_rate: float, other_rate: float) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            hidden = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
            (matrices if hidden else others).append(parameter)
        self._rates = (matrix_rate, other_rate)
        self._parts: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=matrix_rate, weight_decay=MATRIX_DECAY),
            torch.optim.AdamW(others, lr=other_rate, betas=OTHER_BETAS, weight_decay=0.0),
        )

    def step(self, rate: float) -> None:
        """One update at `rate` times the base learning rates; gradients are cleared."""
        for part, base in zip(self._parts, self._rates, strict=True):
            for group in part.param_groups:
                group["lr"] = base * rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        """What `restore` needs to go on exactly here."""
        return [part.state_dict() for part in self._parts]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Go on from `state()`."""
        for part, saved in zip(self._parts, state, strict=True):
            part.load_state_dict(saved)
