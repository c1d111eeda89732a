"""Medusa heads and MLP speculators of other projects: what is drafted from them is what their papers' equations say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.reference_nets import EPS, VOCAB, WIDTH, Tensors
from torch import Tensor

from outrider.actors.draft.checkpoints.checkpoint_format import UnfitCheckpoint
from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.on_states.known_formats import found_in

STAGES, INNER = 3, 16


def chained(net: SpeculatorNet, state: Tensor, tokens: list[int]) -> Tensor:
    """Logits after each of a chain of tokens behind a state of the target."""
    found = []
    for stage, token in enumerate(tokens):
        state = net.stage(stage, state, torch.tensor(token))
        found.append(net.logits(stage, state))
    return torch.stack(found)


def same(found: Tensor, expected: Tensor) -> None:
    """To five digits."""
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def medusa(state: Tensor, blocks: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    """Residual blocks of a head (Cai et al. 2024, arXiv 2401.10774)."""
    for weight, bias in blocks:
        state = state + F.silu(F.linear(state, weight, bias))
    return state


@pytest.mark.parametrize("name", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
@pytest.mark.parametrize("depth", [1, 2])
def test_medusa_as_its_project_writes_it(tmp_path: Path, name: str, depth: int) -> None:
    """Every head reads the target's state, whatever was drafted; a configuration that names neither sizes nor a type."""
    draw = plain.numbers(1)
    weights: Tensors = {}
    for head in range(STAGES):
        for block in range(depth):
            weights[f"{head}.{block}.linear.weight"] = draw(WIDTH, WIDTH)
            weights[f"{head}.{block}.linear.bias"] = draw(WIDTH)
        weights[f"{head}.{depth}.weight"] = draw(VOCAB, WIDTH)
    config = {"medusa_num_heads": 2, "medusa_num_layers": depth, "base_model_name_or_path": "x"}
    folder = plain.write(tmp_path / "m", config, weights, name)
    assert loading_method(str(folder)) == "mlp_speculator"
    net = load_speculator(folder)
    assert net.config.deepest == STAGES
    state = draw(WIDTH)
    expected = [
        weights[f"{head}.{depth}.weight"]
        @ medusa(
            state,
            [
                (weights[f"{head}.{n}.linear.weight"], weights[f"{head}.{n}.linear.bias"])
                for n in range(depth)
            ],
        )
        for head in range(STAGES)
    ]
    same(chained(net, state, [4, 7, 1]), torch.stack(expected))


def test_medusa_heads_without_output_layers_use_the_targets(tmp_path: Path) -> None:
    """As the second version of the project has them."""
    target, _, output = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(2)
    weights = {f"{head}.0.linear.weight": draw(WIDTH, WIDTH) for head in range(STAGES)}
    weights |= {f"{head}.0.linear.bias": draw(WIDTH) for head in range(STAGES)}
    config = {"medusa_num_heads": STAGES, "medusa_num_layers": 1}
    folder = plain.write(tmp_path / "m", config, weights, "medusa_lm_head.pt")
    net = load_speculator(folder, target=str(target))
    state = draw(WIDTH)
    expected = [
        output
        @ medusa(state, [(weights[f"{head}.0.linear.weight"], weights[f"{head}.0.linear.bias"])])
        for head in range(STAGES)
    ]
    same(chained(net, state, [4, 7, 1]), torch.stack(expected))
    assert net.config.eos_token_ids == (3,)


@pytest.mark.parametrize("is_shared", [False, True])
def test_medusa_as_serving_engines_write_it(tmp_path: Path, is_shared: bool) -> None:
    """No biases, heads of some tokens, one for all stages or one each."""
    draw = plain.numbers(3)
    ids = [1, 2, 5, 8, 13]
    weights = {f"blocks.{head}.layers.0.weight": draw(WIDTH, WIDTH) for head in range(STAGES)}
    heads = 1 if is_shared else STAGES
    weights |= {f"lm_heads.{head}.weight": draw(len(ids), WIDTH) for head in range(heads)}
    config = {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "num_heads": STAGES,
        "num_hidden_layers": 1,
        "hidden_size": WIDTH,
        "vocab_size": VOCAB,
        "truncated_vocab_size": len(ids),
        "original_lm_head": is_shared,
        "logit_scale": 0.5,
    }
    tensors = {**weights, "token_map": torch.tensor(ids)}
    net = load_speculator(plain.write(tmp_path / "m", config, tensors))
    state = draw(WIDTH)
    expected = torch.full((STAGES, VOCAB), -torch.inf)
    for head in range(STAGES):
        output = weights[f"lm_heads.{0 if is_shared else head}.weight"]
        hidden = medusa(state, [(weights[f"blocks.{head}.layers.0.weight"], None)])
        expected[head, ids] = 0.5 * (output @ hidden)
    same(chained(net, state, [4, 7, 1]), expected)


def test_medusa_heads_of_all_tokens_beside_a_list_of_some(tmp_path: Path) -> None:
    """The list saves an engine time, and the heads say the same without it."""
    draw = plain.numbers(3)
    weights = {f"blocks.{head}.layers.0.weight": draw(WIDTH, WIDTH) for head in range(STAGES)}
    weights |= {f"lm_heads.{head}.weight": draw(VOCAB, WIDTH) for head in range(STAGES)}
    config = {"model_type": "medusa", "num_heads": STAGES, "truncated_vocab_size": 4}
    tensors = {**weights, "token_map": torch.tensor([1, 5, 8, 13])}
    net = load_speculator(plain.write(tmp_path / "m", config, tensors))
    state = draw(WIDTH)
    expected = [
        weights[f"lm_heads.{head}.weight"]
        @ medusa(state, [(weights[f"blocks.{head}.layers.0.weight"], None)])
        for head in range(STAGES)
    ]
    same(chained(net, state, [4, 7, 1]), torch.stack(expected))


@pytest.mark.parametrize("prefix", ["speculator.", ""])
@pytest.mark.parametrize(("tied", "again"), [(False, False), (True, False), (True, True)])
def test_mlp_speculators(tmp_path: Path, prefix: str, tied: bool, again: bool) -> None:
    """Untied, or tied and scaled, whose file may hold the tied weights once or for each stage (Wertheimer et al. 2024, arXiv 2404.19124)."""
    draw = plain.numbers(4)
    weights: Tensors = {}
    for stage in range(STAGES):
        first = 0 if tied else stage
        source = min(stage, 1) if tied else stage
        weights[f"emb.{stage}.weight"] = weights.get(f"emb.{first}.weight", draw(VOCAB, INNER))
        weights[f"head.{stage}.weight"] = weights.get(f"head.{first}.weight", draw(VOCAB, INNER))
        weights[f"ln.{stage}.weight"] = weights.get(f"ln.{first}.weight", draw(INNER))
        weights[f"ln.{stage}.bias"] = weights.get(f"ln.{first}.bias", draw(INNER))
        width = WIDTH if stage == 0 else INNER
        weights[f"proj.{stage}.weight"] = weights.get(f"proj.{source}.weight", draw(INNER, width))
    stored = {
        name: value.clone()
        for name, value in weights.items()
        if again or not tied or ".0." in name or name == "proj.1.weight"
    }
    config = {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        "emb_dim": WIDTH,
        "inner_dim": INNER,
        "n_predict": STAGES,
        "n_candidates": 5,
        "top_k_tokens_per_head": [5, 4, 3],
        "vocab_size": VOCAB,
        "tie_weights": tied,
        "scale_input": tied,
    }
    folder = plain.write(
        tmp_path / "m", config, {prefix + name: value for name, value in stored.items()}
    )
    net = load_speculator(folder)
    state_weight = 2.0 ** (-1.0 / (2 * STAGES))
    token_weight = ((1.0 - state_weight**2) * INNER / 2.0) ** 0.5
    hidden = state = draw(WIDTH)
    if tied:
        hidden = state / (state.square().mean() + EPS).sqrt() / 2.0**0.5
    expected = []
    for stage, token in enumerate([4, 7, 1]):
        mixed = weights[f"proj.{stage}.weight"] @ hidden
        mixed = mixed + token_weight / state_weight * weights[f"emb.{stage}.weight"][token]
        mixed = plain.normed(mixed, weights[f"ln.{stage}.weight"]) + weights[f"ln.{stage}.bias"]
        hidden = F.gelu(mixed)
        expected.append(weights[f"head.{stage}.weight"] @ hidden)
    same(chained(net, state, [4, 7, 1]), torch.stack(expected))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1.1.weight", "head 1 lacks its output layer"),
        ("1.0.linear.weight", "head 1 lacks the weight of its block 0"),
        ("0.0.linear.bias", "head 0 lacks the bias of its block 0"),
    ],
)
def test_medusa_heads_that_are_not_alike_are_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    """By their names and shapes alone."""
    draw = plain.numbers(1)
    weights: Tensors = {}
    for head in range(2):
        weights[f"{head}.0.linear.weight"] = draw(WIDTH, WIDTH)
        weights[f"{head}.0.linear.bias"] = draw(WIDTH)
        weights[f"{head}.1.weight"] = draw(VOCAB, WIDTH)
    del weights[name]
    found = found_in(plain.write(tmp_path / "m", {"medusa_num_heads": 2}, weights))
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match=message):
        found.translated("")


@pytest.mark.parametrize("key", ["medusa_num_heads", "num_heads"])
def test_medusa_files_that_lack_heads_are_refused(tmp_path: Path, key: str) -> None:
    """Half a file, say: it holds fewer than its configuration names."""
    draw = plain.numbers(1)
    stem = {"medusa_num_heads": "{}.0.linear.weight", "num_heads": "blocks.{}.layers.0.weight"}[key]
    weights = {stem.format(head): draw(WIDTH, WIDTH) for head in range(2)}
    config: dict[str, int | str] = {key: 5, "vocab_size": VOCAB}
    if key == "num_heads":
        config["model_type"] = "medusa"
    found = found_in(plain.write(tmp_path / "m", config, weights))
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match="it says 5 heads, and its tensors are of 2"):
        found.translated("")
