"""EAGLE-3 checkpoints and modules of multi-token prediction of other projects: what is drafted is what their papers' equations say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from structlog.testing import capture_logs
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.eagle.small_eagle import eagle_spec
from tests.actors.draft.reference_nets import BLOCKS, LAYERS, VOCAB, WIDTH, Tensors
from torch import Tensor

from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.eagle.eagle_engine import EagleEngine
from outrider.actors.draft.eagle.eagle_file import load_eagle
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.engine.protocol import Moves, Rows

DRAFTED = [1, 2, 5, 8, 13, 21]
TOKENS = [3, 9, 4, 11, 7, 2]
"""Of positions 0 on; states are known of all but the last two."""

LLAMA: dict[str, Any] = {**LAYERS, "model_type": "llama", "num_hidden_layers": 1}
QWEN: dict[str, Any] = {**LAYERS, "num_hidden_layers": 1}


def eagle_weights(
    draw: plain.Heads, prefix: str, *, taps: int, rows: int, norms: bool = False
) -> Tensors:
    """A whole net but for its embedding."""
    return {
        **plain.layer_weights(draw, prefix, reads=2, norms=norms),
        f"{prefix}.hidden_norm.weight": draw(WIDTH),
        "fc.weight": draw(WIDTH, taps * WIDTH),
        "norm.weight": draw(WIDTH),
        "lm_head.weight": draw(rows, WIDTH),
    }


def eagle(
    weights: Tensors,
    prefix: str,
    embedding: Tensor,
    states: Tensor,
    *,
    before_residual: bool = False,
    fed_back_normed: bool = False,
    function: Callable[[Tensor], Tensor] = F.silu,
) -> Tensor:
    """EAGLE-3, arXiv 2503.01840: outputs of pairs of a state and the token behind it, the last on outputs of its own.

    Args:
        weights: By name.
        prefix: Of the layer.
        embedding: [V, D].
        states: Fused states of positions 0 to T - 1.
        before_residual: The sum around attention begins with the normed state.
        fed_back_normed: What is fed back is normed.
        function: Of the gated product.
    """
    known = list(states)
    inputs: list[Tensor] = []
    found: list[Tensor] = []
    for position in range(1, len(TOKENS)):
        own = found[-1] if found else states[0]
        if fed_back_normed:
            own = plain.normed(own, weights["norm.weight"])
        state = known[position - 1] if position <= len(known) else own
        hidden = plain.normed(state, weights[f"{prefix}.hidden_norm.weight"])
        token = plain.normed(
            embedding[TOKENS[position]], weights[f"{prefix}.input_layernorm.weight"]
        )
        inputs.append(torch.cat((token, hidden)))
        row = torch.stack(inputs)
        around = (hidden if before_residual else state) + last_attention(weights, prefix, row)
        found.append(around + product(weights, prefix, around, function))
    return torch.stack(found)


def last_attention(weights: Tensors, prefix: str, rows: Tensor) -> Tensor:
    """What the last row gathers from all."""
    places = torch.arange(1, 1 + len(rows))
    seen = torch.ones(1, len(rows), dtype=torch.bool)
    gathered = plain.attention(
        weights, f"{prefix}.self_attn", rows[-1:], places[-1:], rows, places, seen
    )
    return gathered[0]


def product(
    weights: Tensors, prefix: str, around: Tensor, function: Callable[[Tensor], Tensor] = F.silu
) -> Tensor:
    """The other half of the layer."""
    inner = plain.normed(around, weights[f"{prefix}.post_attention_layernorm.weight"])
    return plain.gated_product(weights, f"{prefix}.mlp", inner, function)


def drafted(net: EagleNet, features: Tensor) -> Tensor:
    """Logits after the last token behind a state of the target, and after one behind it, as the service's engine tells them."""
    engine = EagleEngine(net, eagle_spec(net), num_slots=1, max_scratch=32)
    slot, count = engine.acquire(), len(features) + 1
    engine.tell_all(slot, 0, features.numpy(), np.array(TOKENS[1:count]))
    committed = Rows(slot=slot, tokens=TOKENS[:count], parents=range(-1, count - 1), logits="last")
    newest = engine.forward([committed]).values_RV
    engine.rebase(Moves.one(slot, range(count)))
    behind = Rows(slot=slot, tokens=TOKENS[count:], parents=[-1], logits="all")
    return torch.cat((newest, engine.forward([behind]).values_RV))


def same(found: Tensor, expected: Tensor) -> None:
    """To five digits of what is great here."""
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def law(weights: Tensors, states: Tensor, ids: list[int] | None = None) -> Tensor:
    """Logits of outputs."""
    logits = plain.normed(states, weights["norm.weight"]) @ weights["lm_head.weight"].T
    if ids is None:
        return logits
    every = torch.full((len(states), VOCAB), -torch.inf)
    every[:, ids] = logits
    return every


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_eagle3_as_its_authors_write_it(tmp_path: Path, name: str, has_ids: bool) -> None:
    """A table of differences, or of ids as some have it; the target's embedding; layers that the files do not name."""
    target, embedding, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    weights = eagle_weights(plain.numbers(1), "midlayer", taps=3, rows=len(DRAFTED))
    weights["d2t"] = torch.tensor(DRAFTED) if has_ids else plain.offsets(DRAFTED)
    weights["t2d"] = plain.members(DRAFTED)
    config = {
        **LLAMA,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(DRAFTED),
    }
    folder = plain.write(tmp_path / "e", config, weights, name)
    assert loading_method(str(folder)) == "eagle3"
    with capture_logs() as logs:
        net = load_eagle(folder, target=str(target))
    assert net.config.taps == (2, 6, 9)
    assert any("after [2, 6, 9] blocks" in log.get("what", "") for log in logs)
    features = plain.numbers(9)(4, 3, WIDTH, size=1.0)
    states = eagle(weights, "midlayer", embedding, features.flatten(1) @ weights["fc.weight"].T)
    same(drafted(net, features), law(weights, states[-2:], DRAFTED))


LISTED = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("within", "beside", "taps", "notes"),
    [
        ([1, 4, 8], None, (2, 5, 9), 0),
        (None, [2, 5, 9], (2, 5, 9), 0),
        ([1, 4, 8], [2, 5, 9], (2, 5, 9), 0),
        ([8, 1, 4], None, (2, 5, 9), 0),
        ([6, 9, 12], None, (6, 9, 12), 1),
        ([2, 5, 9], None, (2, 5, 9), 1),
        ([2, 5, 9], [2, 5, 9], (2, 5, 9), 0),
    ],
)
def test_layers_that_other_trainers_name(
    tmp_path: Path,
    within: list[int] | None,
    beside: list[int] | None,
    taps: tuple[int, ...],
    notes: int,
) -> None:
    """In `eagle_config`, where lists that begin at 1 count outputs and others inputs, or beside it, where all count inputs; in any order."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    weights = eagle_weights(plain.numbers(1), "midlayer", taps=3, rows=VOCAB)
    config: dict[str, Any] = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"]}
    if within is not None:
        config["eagle_config"] = {LISTED: within, "use_aux_hidden_state": True}
    if beside is not None:
        config[LISTED] = beside
    folder = plain.write(tmp_path / "e", config, weights)
    with capture_logs() as logs:
        net = load_eagle(folder, target=str(target))
    assert net.config.taps == taps
    assert sum("counts layers by their input" in log["what"] for log in logs) == notes == len(logs)


@pytest.mark.parametrize("beside", [None, [2, 5, 10]])
def test_layers_that_angelslim_names(tmp_path: Path, beside: list[int] | None) -> None:
    """Its trainer reads the outputs of those that its field names; the engines' field counts inputs, and may be missing."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    weights = eagle_weights(plain.numbers(1), "midlayer", taps=3, rows=VOCAB)
    config: dict[str, Any] = {**LLAMA, "architectures": ["Eagle3LlamaForCausalLM"]}
    config |= {"aux_hidden_states_layer_ids": [1, 4, 9], LISTED: beside}
    folder = plain.write(tmp_path / "e", config, weights)
    with capture_logs() as logs:
        assert load_eagle(folder, target=str(target)).config.taps == (2, 5, 10)
    assert logs == []


@pytest.mark.parametrize("name", ["norm_output", "return_hidden_post_norm"])
def test_norms_that_stand_in_eagle_config(tmp_path: Path, name: str) -> None:
    """As in NVIDIA's files for gpt-oss, with what ModelOpt writes besides and nothing here has a use for."""
    target, embedding, _ = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(3)
    weights = eagle_weights(draw, "layers.0", taps=2, rows=VOCAB)
    weights["input_norm.weight"] = draw(2 * WIDTH)
    own = {LISTED: [2, BLOCKS], "norm_before_fc": True, name: True}
    own |= {"next_layer_regular": True, "parallel_draft_step": 1, "use_last_layernorm": True}
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "eagle_config": own}
    config |= {"norm_before_fc": False, "draft_vocab_size": None}
    with capture_logs() as logs:
        net = load_eagle(plain.write(tmp_path / "e", config, weights), target=str(target))
    assert len(logs) == 1
    features = plain.numbers(9)(4, 2, WIDTH, size=1.0)
    rows = plain.normed(features.flatten(1), weights["input_norm.weight"])
    states = eagle(
        weights, "layers.0", embedding, rows @ weights["fc.weight"].T, fed_back_normed=True
    )
    same(drafted(net, features), law(weights, states[-2:]))


@pytest.mark.parametrize("is_said", [False, True])
@pytest.mark.parametrize("has_biases", [False, True])
def test_biases_are_told_by_tensors(tmp_path: Path, is_said: bool, has_biases: bool) -> None:
    """SpecForge copies `attention_bias` from the target, and its nets have none; other nets have some, and copy it from one that has none."""
    target, embedding, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    draw = plain.numbers(3)
    weights = eagle_weights(draw, "midlayer", taps=3, rows=VOCAB)
    weights |= plain.layer_weights(draw, "midlayer", reads=2, norms=False, biases=has_biases)
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "attention_bias": is_said}
    net = load_eagle(plain.write(tmp_path / "e", config, weights), target=str(target))
    features = plain.numbers(9)(4, 3, WIDTH, size=1.0)
    states = eagle(weights, "midlayer", embedding, features.flatten(1) @ weights["fc.weight"].T)
    same(drafted(net, features), law(weights, states[-2:]))


@pytest.mark.parametrize("outer", ["", "model."])
def test_what_serving_engines_read_besides(tmp_path: Path, outer: str) -> None:
    """A bias of `fc`, the former name of `fc_norm`, a scale of the logits, and names that begin with `model.`, all of which SGLang or vLLM reads."""
    target, embedding, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    draw = plain.numbers(3)
    weights = eagle_weights(draw, "layers.0", taps=3, rows=len(DRAFTED))
    weights |= {f"fc_norm.{n}.weight": draw(WIDTH) for n in range(3)}
    weights |= {"fc.bias": draw(WIDTH), "embed_tokens.weight": embedding + 1.0}
    outside = {"lm_head.weight": weights["lm_head.weight"], "d2t": plain.offsets(DRAFTED)}
    stored = {outer + name: value for name, value in weights.items() if name not in outside}
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "bias": True}
    config |= {"use_aux_norm": True, "logit_scale": 0.5, "draft_vocab_size": len(DRAFTED)}
    folder = plain.write(tmp_path / "e", config, {**stored, **outside})
    net = load_eagle(folder, target=str(target))
    features = plain.numbers(9)(4, 3, WIDTH, size=1.0)
    normed = [plain.normed(features[:, n], weights[f"fc_norm.{n}.weight"]) for n in range(3)]
    fused = torch.cat(normed, dim=1) @ weights["fc.weight"].T + weights["fc.bias"]
    states = eagle(weights, "layers.0", embedding + 1.0, fused)
    same(drafted(net, features), 0.5 * law(weights, states[-2:], DRAFTED))


TANH = partial(F.gelu, approximate="tanh")
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_pytorch_tanh": TANH,
    "gelu_new": TANH,
    "swish": F.silu,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_gated_product(tmp_path: Path, name: str) -> None:
    """The library takes that of the target, as of Gemma."""
    target, embedding, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    weights = eagle_weights(plain.numbers(3), "layers.0", taps=3, rows=VOCAB)
    config = {
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {**LLAMA, "hidden_act": name},
        "draft_vocab_size": VOCAB,
    }
    net = load_eagle(plain.write(tmp_path / "e", config, weights), target=str(target))
    features = plain.numbers(9)(4, 3, WIDTH, size=1.0)
    fused = features.flatten(1) @ weights["fc.weight"].T
    states = eagle(weights, "layers.0", embedding, fused, function=FUNCTIONS[name])
    same(drafted(net, features), law(weights, states[-2:]))


def test_eagle3_that_reads_one_state(tmp_path: Path) -> None:
    """That of the target's own head, as it is, as in NVIDIA's files for short contexts."""
    target, embedding, _ = plain.target_folder(tmp_path / "t")
    weights = eagle_weights(plain.numbers(3), "layers.0", taps=1, rows=VOCAB)
    del weights["fc.weight"]
    own = {LISTED: [], "use_aux_hidden_state": False}
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "eagle_config": own}
    net = load_eagle(plain.write(tmp_path / "e", config, weights), target=str(target))
    assert net.config.taps == ("norm",)
    features = plain.numbers(9)(4, 1, WIDTH, size=1.0)
    states = eagle(weights, "layers.0", embedding, features[:, 0])
    same(drafted(net, features), law(weights, states[-2:]))


def test_eagle3_of_deepspec(tmp_path: Path) -> None:
    """Outputs of blocks are counted, heads are normed, embedding and head are its own, and all tokens are drafted."""
    draw = plain.numbers(2)
    weights = eagle_weights(draw, "layers.0", taps=2, rows=VOCAB, norms=True)
    weights["embed_tokens.weight"] = draw(VOCAB, WIDTH)
    config = {
        **QWEN,
        "architectures": ["Qwen3Eagle3Model"],
        "target_layer_ids": [0, 2],
        "ttt_length": 5,
        "num_target_layers": BLOCKS,
    }
    net = load_eagle(plain.write(tmp_path / "e", config, weights))
    assert (net.config.taps, net.config.num_steps) == ((1, 3), 5)
    features = plain.numbers(9)(4, 2, WIDTH, size=1.0)
    fused = features.flatten(1) @ weights["fc.weight"].T
    states = eagle(weights, "layers.0", weights["embed_tokens.weight"], fused)
    same(drafted(net, features), law(weights, states[-2:]))


@pytest.mark.parametrize("norm", ["none", "norm_before_fc", "fc_norm"])
@pytest.mark.parametrize("flags", [False, True])
def test_eagle3_of_the_library(tmp_path: Path, norm: str, flags: bool) -> None:
    """With each of its norms."""
    target, embedding, _ = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(3)
    weights = eagle_weights(draw, "layers.0", taps=2, rows=len(DRAFTED), norms=True)
    weights |= {"d2t": plain.offsets(DRAFTED), "t2d": plain.members(DRAFTED)}
    config = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": QWEN,
        "draft_vocab_size": len(DRAFTED),
        "eagle_aux_hidden_state_layer_ids": [1, BLOCKS],
        "norm_before_residual": flags,
        "norm_output": flags,
        "norm_before_fc": norm == "norm_before_fc",
        "fc_norm": norm == "fc_norm",
    }
    if flags:
        config["speculators_config"] = {"proposal_methods": [{"speculative_tokens": 5}]}
    features = plain.numbers(9)(4, 2, WIDTH, size=1.0)
    rows = features.flatten(1)
    if norm == "norm_before_fc":
        weights["input_norm.weight"] = draw(2 * WIDTH)
        rows = plain.normed(rows, weights["input_norm.weight"])
    if norm == "fc_norm":
        weights |= {f"fc_norm.{n}.weight": draw(WIDTH) for n in range(2)}
        both = [plain.normed(features[:, n], weights[f"fc_norm.{n}.weight"]) for n in range(2)]
        rows = torch.cat(both, dim=1)
    net = load_eagle(plain.write(tmp_path / "e", config, weights), target=str(target))
    assert (net.config.taps, net.config.num_steps) == ((1, BLOCKS), 5 if flags else 3)
    states = eagle(
        weights,
        "layers.0",
        embedding,
        rows @ weights["fc.weight"].T,
        before_residual=flags,
        fed_back_normed=flags,
    )
    same(drafted(net, features), law(weights, states[-2:], DRAFTED))


def test_multi_token_prediction_of_the_library(tmp_path: Path) -> None:
    """One module on what comes out of the last block, embedding first, its normed output fed back (FastMTP, arXiv 2509.18362)."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    draw, prefix = plain.numbers(4), "mtp_layers.0"
    weights = plain.layer_weights(draw, prefix)
    norms = ("hidden_layernorm", "token_layernorm", "final_layernorm")
    weights |= {f"{prefix}.{norm}.weight": draw(WIDTH) for norm in norms}
    weights[f"{prefix}.input_proj.weight"] = draw(WIDTH, 2 * WIDTH)
    config = {
        "speculators_model_type": "mtp",
        "transformer_layer_config": {**QWEN, "num_hidden_layers": BLOCKS},
        "num_nextn_predict_layers": 1,
        "speculators_config": {"proposal_methods": [{"speculative_tokens": 2}]},
    }
    net = load_eagle(plain.write(tmp_path / "e", config, weights), target=str(target))
    assert (net.config.taps, net.config.num_steps) == ((BLOCKS,), 2)
    features = plain.numbers(9)(4, 1, WIDTH, size=1.0)
    rows: list[Tensor] = []
    found: list[Tensor] = []
    for position in range(1, len(TOKENS)):
        state = features[position - 1, 0] if position <= len(features) else found[-1]
        token = embedding[TOKENS[position]]
        both = (
            plain.normed(token, weights[f"{prefix}.token_layernorm.weight"]),
            plain.normed(state, weights[f"{prefix}.hidden_layernorm.weight"]),
        )
        joined = weights[f"{prefix}.input_proj.weight"] @ torch.cat(both)
        rows.append(plain.normed(joined, weights[f"{prefix}.input_layernorm.weight"]))
        around = joined + last_attention(weights, prefix, torch.stack(rows))
        out = around + product(weights, prefix, around)
        found.append(plain.normed(out, weights[f"{prefix}.final_layernorm.weight"]))
    same(drafted(net, features), torch.stack(found[-2:]) @ head.T)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("owns_head", [False, True])
@pytest.mark.parametrize("order", ["in order", "another"])
def test_a_head_with_all_tokens_may_have_them_in_another_order(
    tmp_path: Path, order: str, owns_head: bool, has_mask: bool
) -> None:
    """Row i stands for the target's id i + d2t[i], however many rows there are; a borrowed head has the target's order already."""
    target, embedding, head = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    weights = eagle_weights(plain.numbers(1), "midlayer", taps=3, rows=VOCAB)
    ids = list(range(VOCAB)) if order == "in order" else [*range(7, VOCAB), *range(7)]
    weights["d2t"] = plain.offsets(ids)
    if has_mask:
        weights["t2d"] = plain.members(ids)
    if not owns_head:
        del weights["lm_head.weight"]
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": VOCAB}
    folder = plain.write(tmp_path / "e", config, weights, "model.safetensors")
    net = load_eagle(folder, target=str(target))
    features = plain.numbers(9)(4, 3, WIDTH, size=1.0)
    states = eagle(weights, "midlayer", embedding, features.flatten(1) @ weights["fc.weight"].T)
    if owns_head:
        same(drafted(net, features), law(weights, states[-2:], ids))
    else:
        same(drafted(net, features), law({**weights, "lm_head.weight": head}, states[-2:]))


def test_a_head_with_all_tokens_has_each_once(tmp_path: Path) -> None:
    """A table that names one twice is refused before weights are read."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=12)
    weights = eagle_weights(plain.numbers(1), "midlayer", taps=3, rows=VOCAB)
    weights["d2t"] = plain.offsets([0, *range(VOCAB - 1)])
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": VOCAB}
    folder = plain.write(tmp_path / "e", config, weights)
    with pytest.raises(ValueError, match="rows of the head stand for no distinct ids"):
        load_eagle(folder, target=str(target))
