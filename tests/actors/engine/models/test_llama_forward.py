"""The forward written out, next to the modules that it stands for."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from outrider.actors.engine.models.llama_weights import llama_weights
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Moves, Rows

MakeEngine = Callable[..., TransformersEngine]

SHAPED = ("llama", "mistral", "qwen2", "qwen3")
"""Families whose weights are run."""


def passes(engine: TransformersEngine, seed: int) -> list[torch.Tensor]:
    """Logits of passes over ragged trees of two sessions, with prompts and moves between them."""
    draw = random.Random(seed)
    slots = [engine.acquire(), engine.acquire()]
    logits = []
    for step in range(6):
        batch = []
        for slot in slots[: 1 + step % 2]:
            size = draw.randint(1, 9)
            old = engine.scratch(slot)
            parents = [draw.randint(-1, old + i - 1) for i in range(size)]
            tokens = [draw.randrange(61) for _ in range(size)]
            batch.append(Rows(slot=slot, tokens=tokens, parents=parents))
        logits.append(engine.forward(batch).values_RV.clone())
        for slot in slots:
            if engine.scratch(slot) > 12:
                engine.rebase(Moves.one(slot, [0], []))
    return logits


@pytest.mark.parametrize("family", SHAPED)
@pytest.mark.parametrize("way", ["off", "on"])
def test_same_logits_as_the_modules(family: str, way: str, make_engine: MakeEngine) -> None:
    """Over trees, batches and moves, up to rounding."""
    direct = make_engine(family, cuda_graphs=way)
    plain = make_engine(family, cuda_graphs=way, direct_forward=False)
    assert direct.llama is not None
    assert plain.llama is None
    for ours, theirs in zip(passes(direct, 3), passes(plain, 3), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_half_precision_is_as_near_as_the_modules(make_engine: MakeEngine) -> None:
    """In bfloat16 both are off by the rounding of that type."""
    exact = passes(make_engine("llama"), 7)
    ours = passes(make_engine("llama", dtype=torch.bfloat16), 7)
    theirs = passes(make_engine("llama", dtype=torch.bfloat16, direct_forward=False), 7)
    for right, one, other in zip(exact, ours, theirs, strict=True):
        assert one.dtype == torch.float32
        assert (one - right).square().mean() <= 2.0 * (other - right).square().mean() + 1e-4


def test_other_families_run_their_modules(family: str, make_engine: MakeEngine) -> None:
    """What a layer does elsewhere is left to it."""
    assert (make_engine(family).llama is not None) == (family in SHAPED)


def test_weights_are_held_once(make_engine: MakeEngine) -> None:
    """The modules' weights are parts of the joined ones, and the modules go on working."""
    given: list[PreTrainedModel] = []
    engine = make_engine("qwen2", prepare=given.append)
    attention = given[0].model.layers[0].self_attn
    storages = {
        each.weight.untyped_storage().data_ptr()
        for each in (attention.q_proj, attention.k_proj, attention.v_proj)
    }
    assert len(storages) == 1
    direct = passes(engine, 9)
    for slot in (0, 1):
        engine.release(slot)
    engine.llama = None
    for ours, theirs in zip(direct, passes(engine, 9), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def _doubled_norm(model: PreTrainedModel) -> None:
    norm = model.model.layers[1].post_attention_layernorm
    forward = norm.forward
    norm.forward = lambda rows: 1.01 * forward(rows)


def test_modules_that_do_something_else_are_run(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth more in one norm shows at load; the modules, which know of it, are run instead."""
    changed = make_engine("llama", prepare=_doubled_norm)
    assert changed.llama is None
    other = passes(changed, 11)
    right = passes(make_engine("llama", prepare=_doubled_norm, direct_forward=False), 11)
    for ours, theirs in zip(other, right, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("max_scratch", [1, 3])
def test_little_room_is_no_reason_not_to_compare(make_engine: MakeEngine, max_scratch: int) -> None:
    """With fewer scratch rows than the probe's tree has, as much of it as fits tells right from wrong."""
    assert make_engine("llama", max_scratch=max_scratch).llama is not None
    changed = make_engine("llama", max_scratch=max_scratch, prepare=_doubled_norm)
    assert changed.llama is None


def test_foreign_code_is_not_taken_for_ours(
    plain_model: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class from a model's own repository may do anything, whatever it calls itself."""
    model = plain_model("llama")
    monkeypatch.setattr(type(model), "__module__", "transformers_modules.llama.modeling_llama")
    assert llama_weights(model, [None, None]) is None
