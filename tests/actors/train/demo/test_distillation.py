"""What drafts are taught: a divergence that knows the likeliest tokens by name and the others as one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.demo.stages import distillation_loss
from outrider.actors.train.demo.target_cache import LISTED, keep
from outrider.actors.train.loop.objective import logits_of

SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
ROWS = np.arange(48, dtype=np.uint16).reshape(3, 16)


def model(seed: int, vocabulary: int = 64) -> LlamaForCausalLM:
    """An untrained one."""
    torch.manual_seed(seed)
    shape = ModelShape(
        hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=vocabulary
    )
    made = build(shape, SPECIAL)
    # Steeper than at birth, so that models differ.
    torch.nn.init.normal_(made.model.embed_tokens.weight, std=1.0)
    return made


def test_a_draft_equal_to_its_target_has_nothing_to_learn() -> None:
    """The divergence of a model from itself is zero but for rounding, from another it is positive."""
    target, other = model(0), model(1)
    kept = keep(target, ROWS)
    assert distillation_loss(target, kept).item() == pytest.approx(0.0, abs=1e-3)
    assert distillation_loss(other, kept).item() > 0.1


def test_with_every_token_listed_it_is_the_whole_divergence() -> None:
    """A vocabulary that fits the list leaves nothing out."""
    target, draft = model(0), model(1)
    rows_BL = torch.from_numpy(ROWS.astype(np.int64))
    logprob_NV, draft_logprob_NV = (
        logits_of(each, rows_BL).flatten(0, 1).float().log_softmax(-1) for each in (target, draft)
    )
    whole = F.kl_div(draft_logprob_NV, logprob_NV, log_target=True, reduction="batchmean")
    loss = distillation_loss(draft, keep(target, ROWS))
    assert loss.item() == pytest.approx(whole.item(), rel=2e-3)


def test_with_tokens_left_out_it_is_the_divergence_of_the_coarser_law() -> None:
    """What is not listed counts as one token: less than the whole divergence, computed by hand in float64."""
    target, draft = model(0, 400), model(1, 400)
    kept = keep(target, ROWS)
    assert kept.tokens_NK.shape == (48, LISTED)
    rows_BL = torch.from_numpy(ROWS.astype(np.int64))
    p, q = (
        logits_of(each, rows_BL).flatten(0, 1).double().softmax(-1).detach()
        for each in (target, draft)
    )
    order = p.argsort(dim=-1, descending=True)
    p, q = p.gather(1, order), q.gather(1, order)
    p, q = (
        torch.cat((each[:, :LISTED], each[:, LISTED:].sum(-1, keepdim=True)), dim=1)
        for each in (p, q)
    )
    by_hand = (p * (p / q).log()).sum(-1).mean().item()
    assert distillation_loss(draft, kept).item() == pytest.approx(by_hand, rel=2e-3)


def test_it_teaches_the_draft_only() -> None:
    """No gradient reaches the target, and every weight of the draft has one."""
    target, draft = model(0), model(1)
    distillation_loss(draft, keep(target, ROWS)).backward()  # type: ignore[no-untyped-call]
    assert all(value.grad is None for value in target.parameters())
    assert all(value.grad is not None for value in draft.parameters())
