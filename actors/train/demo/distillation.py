"""What drafts are trained on: the target's own distribution."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.target_cache import Kept
from outrider.actors.train.loop.output_head import LEAST_REST, listed_rule, mean_loss


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
    return mean_loss(
        draft, rows_BL, listed_rule(tokens_NK, target_logprob_NK, LEAST_REST), last=True
    )
