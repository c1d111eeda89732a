"""Loss and gradient of the output layer, a few positions at a time.

Logits of all positions of a step are the largest arrays of training by far, and every pass over them goes through main
memory. A chunk of them stays in the processor's cache until it has been turned into its own gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.loop.data_parallel import count_of_all
from outrider.actors.train.loop.objective import has_fast_bfloat16, mixed_precision

LISTED = 64
"""Tokens of the target's distribution that are listed one by one."""

LEAST_REST = 1e-6
"""Mass of the others, at least."""

CHUNK = 256
"""Positions whose logits are there at a time."""

Rule = Callable[[slice, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Of positions C and their logits_CV, float32: the sum of their losses [], and its gradient_CV."""


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: torch.Tensor, weight_VD: torch.Tensor, rule: Rule
    ) -> torch.Tensor:
        kind = torch.bfloat16 if has_fast_bfloat16(hidden_ND.device) else torch.float32
        weight = weight_VD.to(kind)
        total = hidden_ND.new_zeros((), dtype=torch.float32)
        hidden_grad_ND = torch.empty_like(hidden_ND)
        # A frozen table is not told how it should be otherwise, which is a third of the work.
        weight_grad_VD = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
        count = len(hidden_ND)
        for start in range(0, count, CHUNK):
            chunk = slice(start, min(start + CHUNK, count))
            hidden = hidden_ND[chunk].to(kind)
            loss, gradient_CV = rule(chunk, (hidden @ weight.T).float())
            total += loss
            gradient = gradient_CV.to(kind)
            hidden_grad_ND[chunk] = gradient @ weight
            if weight_grad_VD is None:
                continue
            if kind == weight_grad_VD.dtype:
                weight_grad_VD.addmm_(gradient.T, hidden)
            else:
                weight_grad_VD += gradient.T @ hidden
        whole = count_of_all(count)
        ctx.save_for_backward(
            hidden_grad_ND.div_(whole),
            None if weight_grad_VD is None else weight_grad_VD.div_(whole),
        )
        return total / whole

    @staticmethod
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        (scale,) = gradients
        hidden_grad_ND, weight_grad_VD = ctx.saved_tensors
        return (
            hidden_grad_ND * scale,
            None if weight_grad_VD is None else weight_grad_VD * scale,
            None,
        )


def mean_loss(
    model: LlamaForCausalLM, rows_BL: torch.Tensor, rule: Rule, *, last: bool
) -> torch.Tensor:
    """Mean of a rule's losses over the positions of rows, to be differentiated with respect to the model's weights.

    Args:
        model: Its output layer has no bias.
        rows_BL: Token ids, int64.
        rule: Sees the positions row after row, N in all.
        last: Whether the last position of each row counts; it has no next token.
    """
    with mixed_precision(rows_BL.device):
        hidden_BLD = model.model(input_ids=rows_BL, use_cache=False).last_hidden_state
    if not last:
        hidden_BLD = hidden_BLD[:, :-1]
    return head_loss(hidden_BLD.flatten(0, 1), model.lm_head.weight, rule)


def head_loss(hidden_ND: torch.Tensor, weight_VD: torch.Tensor, rule: Rule) -> torch.Tensor:
    """Mean of a rule's losses over positions, to be differentiated with respect to both arguments.

    Args:
        hidden_ND: What goes into the output layer at each position.
        weight_VD: The output layer.
        rule: Sees the positions in this order.
    """
    loss: torch.Tensor = _Head.apply(hidden_ND, weight_VD, rule)  # type: ignore[no-untyped-call]
    return loss


def next_token_rule(tokens_N: torch.Tensor) -> Rule:
    """Cross-entropy with the tokens that follow, nats."""

    def rule(chunk: slice, logits_CV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wanted_C1 = tokens_N[chunk, None]
        logprob_CV = logits_CV.log_softmax(-1)
        loss = -logprob_CV.gather(1, wanted_C1).sum()
        gradient_CV = logprob_CV.exp_()
        gradient_CV.scatter_add_(1, wanted_C1, -torch.ones_like(wanted_C1, dtype=torch.float32))
        return loss, gradient_CV

    return rule


def listed_rule(
    tokens_NK: torch.Tensor, target_logprob_NK: torch.Tensor, least_rest: float
) -> Rule:
    """Forward divergence from a distribution of which K tokens are listed and all others are one, nats.

    Args:
        tokens_NK: The listed tokens, int64, different ones in a row.
        target_logprob_NK: Their log-probabilities, float32.
        least_rest: Mass of the tokens that are not listed, at least, on both sides.
    """

    def rule(chunk: slice, logits_CV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens_CK, target_logprob_CK = tokens_NK[chunk], target_logprob_NK[chunk]
        logprob_CV = logits_CV.log_softmax(-1)
        logprob_CK = logprob_CV.gather(1, tokens_CK)
        prob_CK, target_CK = logprob_CK.exp(), target_logprob_CK.exp()
        listed_C1 = target_CK.sum(-1, keepdim=True)
        rest_C1 = (1.0 - listed_C1).clamp_min(least_rest)
        raw_C1 = 1.0 - prob_CK.sum(-1, keepdim=True)
        own_C1 = raw_C1.clamp_min(least_rest)
        loss = (target_CK * (target_logprob_CK - logprob_CK)).sum() + (
            rest_C1 * (rest_C1.log() - own_C1.log())
        ).sum()
        moving_C1 = torch.where(raw_C1 >= least_rest, rest_C1, 0.0)
        whole_C1 = listed_C1 + moving_C1
        gradient_CV = logprob_CV.exp_().mul_(whole_C1 - moving_C1 / own_C1)
        gradient_CV.scatter_(1, tokens_CK, whole_C1 * prob_CK - target_CK)
        return loss, gradient_CV

    return rule


def text_loss(model: LlamaForCausalLM, rows_BL: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next token, nats per token: what the target is trained on."""
    return mean_loss(model, rows_BL, next_token_rule(rows_BL[:, 1:].flatten()), last=False)
