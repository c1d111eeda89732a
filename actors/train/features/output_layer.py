"""The last part of a target: from its states after the final norm to its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from outrider.actors.draft.heads.speculator_net import matrix
from outrider.actors.train.training_errors import TrainError

PROBED = 8
"""Tokens on which it is found out."""

NEAR = 1e-4
"""Difference of two ways to the same logits, as a part of the largest one."""


Logits = Callable[[torch.Tensor], torch.Tensor]
"""Logits [.., V] of states [.., D] after the final norm, as the target makes them."""


def product(head_VD: torch.Tensor) -> Logits:
    """Those of a head without more."""
    return lambda states: F.linear(states, head_VD)


class OutputLayer:
    """Of one model.

    In most families the logits are a product with the head. Others add a bias, divide or cap. There the model does it itself: it runs on one
    token, and the states take the place of that token's state in front of the head.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Finds out which it is.

        Raises:
            TrainError: The logits are not finite, or made in a way that is not known here.
        """
        self._model = model
        # Untyped in transformers.
        self._head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._is_product = True
        weight = matrix(self._head)
        ids = torch.arange(min(PROBED, len(weight)), device=weight.device)[None]
        with torch.no_grad():
            logits = self._run(ids).float()
            base: Any = getattr(model, model.base_model_prefix)
            states = base(input_ids=ids, use_cache=False).last_hidden_state.float()
        if not torch.isfinite(logits).all():
            raise TrainError("the target's logits are not finite; nothing can be learnt from it")
        near = NEAR * float(logits.abs().max())
        self._is_product = torch.allclose(self(states), logits, rtol=0.0, atol=near)
        if not self._is_product and not torch.allclose(self(states), logits, rtol=0.0, atol=near):
            raise TrainError(
                "the target's logits do not follow from its last hidden states and its head"
            )

    @torch.no_grad()
    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """See `Logits`."""
        weight = matrix(self._head)
        if self._is_product:
            return product(weight)(states)
        rows_1ND = states.reshape(1, -1, states.shape[-1])
        handle = self._head.register_forward_pre_hook(lambda head, given: (rows_1ND,))
        try:
            logits_1NV = self._run(torch.zeros(1, 1, dtype=torch.int64, device=weight.device))
        finally:
            handle.remove()
        if logits_1NV.shape[1] != rows_1ND.shape[1]:
            raise TrainError("the target's logits are not made by its head")
        return logits_1NV.float().reshape(*states.shape[:-1], -1)

    def _run(self, ids_BL: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(input_ids=ids_BL, use_cache=False).logits
        return logits
