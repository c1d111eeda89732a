"""The output layer's loss and gradient, a few positions at a time, against the same by automatic differentiation at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop import objective, output_head
from outrider.actors.train.loop.output_head import listed_rule, mean_loss, text_loss

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
ROWS = torch.arange(48).reshape(3, 16)
LEAST = 1e-6

Loss = Callable[[LlamaForCausalLM], torch.Tensor]


def model(std: float = 0.3) -> LlamaForCausalLM:
    """One whose probabilities are far from uniform."""
    torch.manual_seed(0)
    made = build(SHAPE, SPECIAL)
    torch.nn.init.normal_(made.model.embed_tokens.weight, std=std)
    return made


def gradients(loss: Loss, scale: float) -> tuple[float, list[torch.Tensor]]:
    """A loss, and `scale` times its gradient by every weight."""
    subject = model()
    value = loss(subject)
    (scale * value).backward()  # type: ignore[no-untyped-call]
    found = [weight.grad for weight in subject.parameters()]
    assert all(each is not None for each in found)
    return value.item(), [each for each in found if each is not None]


def assert_alike(one: Loss, other: Loss) -> None:
    """Same loss, same gradient of three times the loss."""
    (value, grads), (wanted, wanted_grads) = gradients(one, 3.0), gradients(other, 3.0)
    assert value == pytest.approx(wanted, rel=1e-5)
    for grad, expected in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-6)


def train_in(precision: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains in this precision, whatever the machine is fast with."""
    for module in (output_head, objective):
        monkeypatch.setattr(module, "has_fast_bfloat16", lambda _: precision == torch.bfloat16)


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processors would train in bfloat16, whose rounding hides what is compared here."""
    train_in(torch.float32, monkeypatch)


@pytest.fixture(params=[1, 7, 48, 1000], ids=lambda size: f"chunk {size}")
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that divide the positions, that do not, and one that holds them all."""
    monkeypatch.setattr(output_head, "CHUNK", request.param)


def test_untrained_model_loses_about_the_logarithm_of_the_vocabulary() -> None:
    """The loss is in nats per token."""
    torch.manual_seed(0)
    assert text_loss(build(SHAPE, SPECIAL), ROWS).item() == pytest.approx(math.log(64), abs=0.1)


@pytest.mark.usefixtures("chunk")
def test_text_loss_is_the_cross_entropy_of_the_next_token() -> None:
    """Each row's last position has none and does not count."""

    def at_once(subject: LlamaForCausalLM) -> torch.Tensor:
        logits_NV = subject(input_ids=ROWS).logits[:, :-1].flatten(0, 1)
        return F.cross_entropy(logits_NV, ROWS[:, 1:].flatten())

    assert_alike(lambda subject: text_loss(subject, ROWS), at_once)


@pytest.mark.usefixtures("chunk")
def test_bfloat16_gives_the_same_up_to_its_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradient are those of float32 within the three digits that bfloat16 has."""
    wanted, wanted_grads = gradients(lambda subject: text_loss(subject, ROWS), 1.0)
    train_in(torch.bfloat16, monkeypatch)
    value, grads = gradients(lambda subject: text_loss(subject, ROWS), 1.0)
    assert value != wanted
    assert value == pytest.approx(wanted, rel=0.01)
    for grad, expected in zip(grads, wanted_grads, strict=True):
        assert F.cosine_similarity(grad.flatten(), expected.flatten(), dim=0) > 0.99


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("sure", [1.0, 60.0], ids=["", "all mass listed"])
def test_listed_loss_is_the_divergence_with_one_rest(sure: float) -> None:
    """Where listed tokens leave less than the least, on either side, the rest teaches nothing."""
    torch.manual_seed(1)
    target_NV = (sure * torch.randn(ROWS.numel(), 64)).log_softmax(-1)
    listed_NK, tokens_NK = target_NV.topk(9, dim=-1, sorted=False)

    def at_once(subject: LlamaForCausalLM) -> torch.Tensor:
        own_NV = subject(input_ids=ROWS).logits.flatten(0, 1).log_softmax(-1)
        own_NK, prob_NK = own_NV.gather(1, tokens_NK), listed_NK.exp()
        rest_N = (1 - prob_NK.sum(-1)).clamp_min(LEAST)
        own_rest_N = (1 - own_NK.exp().sum(-1)).clamp_min(LEAST)
        whole_N = (prob_NK * (listed_NK - own_NK)).sum(-1) + rest_N * (rest_N / own_rest_N).log()
        mean: torch.Tensor = whole_N.mean()
        return mean

    def in_chunks(subject: LlamaForCausalLM) -> torch.Tensor:
        return mean_loss(subject, ROWS, listed_rule(tokens_NK, listed_NK, LEAST), last=True)

    assert_alike(in_chunks, at_once)


def test_a_draft_that_lists_all_its_mass_is_not_pushed_beyond_it() -> None:
    """Its own rest is below the least: the rest has no slope there, by hand as by automatic differentiation."""
    logits_CV = torch.tensor([[40.0, 39.0, 0.0, 0.0]], requires_grad=True)
    tokens_CK, target_CK = torch.tensor([[0, 1]]), torch.tensor([[0.5, 0.3]]).log()
    own_CK = logits_CV.log_softmax(-1).gather(1, tokens_CK)
    rest = (1 - own_CK.exp().sum(-1)).clamp_min(LEAST)
    wanted = (target_CK.exp() * (target_CK - own_CK)).sum() + (0.2 * (0.2 / rest).log()).sum()
    wanted.backward()  # type: ignore[no-untyped-call]
    rule = listed_rule(tokens_CK, target_CK, LEAST)
    loss, gradient_CV = rule(slice(0, 1), logits_CV.detach().clone())
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    torch.testing.assert_close(gradient_CV, logits_CV.grad)
