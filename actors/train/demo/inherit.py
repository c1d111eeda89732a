"""A draft's first embedding: the target's, in the directions that matter most."""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM


@torch.no_grad()
def inherit_embedding(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> None:
    """Set the draft's tied embedding to the target's, projected to the draft's width.

    The projection keeps the leading right singular vectors, the best approximation of that rank
    (Eckart and Young 1936), so that the draft starts out knowing which tokens are alike. A draft
    as wide as its target gets a rotation of it.

    Raises:
        ValueError: the draft is wider than its target, or the vocabularies differ.
    """
    target_VE = target.model.embed_tokens.weight.float()
    draft_VD = draft.model.embed_tokens.weight
    if len(target_VE) != len(draft_VD) or target_VE.shape[1] < draft_VD.shape[1]:
        raise ValueError(
            f"target embedding is {tuple(target_VE.shape)}, draft's {tuple(draft_VD.shape)}; "
            "the vocabularies must agree and the draft be no wider"
        )
    rotation_EE = torch.linalg.svd(target_VE, full_matrices=False).Vh.T
    draft_VD.copy_(target_VE @ rotation_EE[:, : draft_VD.shape[1]])
