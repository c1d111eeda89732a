"""The draft's embedding starts from the target's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from outrider.actors.train.demo.inherit import inherit_embedding
from outrider.actors.train.demo.recipe import ModelShape, build

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}


def test_likeness_of_tokens_is_kept_as_far_as_the_rank_allows() -> None:
    """Inner products of an embedding that has rank 8 survive in 8 dimensions."""
    torch.manual_seed(0)
    target, draft = build(SHAPE, SPECIAL), build(replace(SHAPE, hidden=8), SPECIAL)
    low_rank_VE = torch.randn(64, 8) @ torch.randn(8, 16)
    target.model.embed_tokens.weight.data.copy_(low_rank_VE)
    inherit_embedding(draft, target)
    draft_VD = draft.model.embed_tokens.weight
    torch.testing.assert_close(
        draft_VD @ draft_VD.T, low_rank_VE @ low_rank_VE.T, rtol=1e-3, atol=1e-3
    )
    assert draft.lm_head.weight is draft_VD


def test_a_wider_draft_is_refused() -> None:
    """The shapes are named."""
    target, draft = build(SHAPE, SPECIAL), build(replace(SHAPE, hidden=32), SPECIAL)
    with pytest.raises(ValueError, match=r"draft's \(64, 32\)"):
        inherit_embedding(draft, target)
