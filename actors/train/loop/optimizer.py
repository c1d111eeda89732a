"""Muon for the hidden matrices, AdamW for the embedding and the norms, as one optimiser."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from outrider.actors.train.loop.objective import has_fast_bfloat16

MATRIX_DECAY = 0.02
OTHER_BETAS = (0.9, 0.95)

NOT_HIDDEN = ("embed", "lm_head", "markov_w", "confidence")
"""Parts of the names of matrices that stand at a vocabulary or give one number: no hidden ones."""


class Float32Muon(torch.optim.Muon):
    """Muon with its iteration in float32, for processors that do not multiply bfloat16 themselves; state as in Muon."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, group)

    def _update(self, matrix_MN: nn.Parameter, group: dict[str, Any]) -> None:
        grad_MN = matrix_MN.grad
        assert grad_MN is not None
        state = self.state[matrix_MN]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad_MN)
        momentum_MN = state["momentum_buffer"]
        momentum_MN.lerp_(grad_MN, 1.0 - group["momentum"])
        ahead_MN = grad_MN.lerp(momentum_MN, group["momentum"])
        update_MN = orthogonal(ahead_MN, group["ns_coefficients"], group["ns_steps"])
        rows, columns = matrix_MN.shape
        matrix_MN.mul_(1.0 - group["lr"] * group["weight_decay"])
        matrix_MN.add_(update_MN, alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))


def orthogonal(
    matrix_MN: torch.Tensor, coefficients: tuple[float, float, float], steps: int
) -> torch.Tensor:
    """Nearly the closest orthogonal matrix, by a quintic Newton-Schulz iteration on the singular values."""
    first, third, fifth = coefficients
    is_tall = matrix_MN.shape[0] > matrix_MN.shape[1]
    near: torch.Tensor = matrix_MN.T if is_tall else matrix_MN
    near = near / near.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = near @ near.T
        near = first * near + (third * gram + fifth * gram @ gram) @ near
    return near.T if is_tall else near


class Optimizer:
    """Both optimisers behind one step.

    Muon (Jordan et al. 2024) orthogonalises the momentum of a matrix; it is meant for hidden
    layers only, hence the split.
    """

    def __init__(self, model: nn.Module, matrix_rate: float, other_rate: float) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            hidden = parameter.ndim == 2 and not any(part in name for part in NOT_HIDDEN)
            (matrices if hidden else others).append(parameter)
        fast = has_fast_bfloat16(matrices[0].device)
        muon = torch.optim.Muon if fast else Float32Muon
        self._rates = (matrix_rate, other_rate)
        self._parts: tuple[torch.optim.Optimizer, ...] = (
            muon(matrices, lr=matrix_rate, weight_decay=MATRIX_DECAY),
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
