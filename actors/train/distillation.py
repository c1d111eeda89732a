"""What drafts are trained on: the target's own distribution."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.kept import Kept
from outrider.actors.train.objective import logits_of

LEAST_REST = 1e-6
"""Mass of the tokens that are not listed, at least."""


def distillation_loss(draft: LlamaForCausalLM, kept: Kept) -> torch.Tensor:
    """Mean forward divergence KL(target || draft), nats per token, the tokens that are not listed taken as one.

    Every position counts, as each is the end of some prefix (Hinton et al. 2015,
    arXiv 1503.02531; for drafts: Zhou et al. 2023, arXiv 2310.08461).
    """
    device = next(draft.parameters()).device
    rows_BL, tokens_NK, target_logprob_NK = (
        torch.from_numpy(array.astype(kind)).to(device)
        for array, kind in (
            (kept.rows_BL, np.int64),
            (kept.tokens_NK, np.int64),
            (kept.logprobs_NK, np.float32),
        )
    )
    logits_NV = logits_of(draft, rows_BL).flatten(0, 1).float()
    draft_logprob_NK = logits_NV.log_softmax(-1).gather(1, tokens_NK)
    prob_NK = target_logprob_NK.exp()
    listed_N = (prob_NK * (target_logprob_NK - draft_logprob_NK)).sum(-1)
    rest_N, draft_rest_N = _rest(prob_NK), _rest(draft_logprob_NK.exp())
    return (listed_N + rest_N * (rest_N.log() - draft_rest_N.log())).mean()


def _rest(prob_NK: torch.Tensor) -> torch.Tensor:
    """What listed tokens leave of the mass; never quite nothing, as the list is rounded."""
    return (1.0 - prob_NK.sum(-1)).clamp_min(LEAST_REST)
