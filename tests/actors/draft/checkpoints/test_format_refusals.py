"""Checkpoints that cannot be run or do not fit are refused by name, before a weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.reference_nets import BLOCKS, LAYERS, VOCAB, WIDTH, Tensors

from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.checkpoints.checkpoint_format import UnfitCheckpoint
from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.on_states.known_formats import found_in
from outrider.actors.draft.on_states.net_folder import NetFolderError, folder_digest

DFLASH: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    **LAYERS,
    "num_hidden_layers": 1,
    "block_size": 4,
    "dflash_config": {"target_layer_ids": [0, 2], "mask_token_id": 23},
}
BARE = {"num_hidden_layers": 1, "block_size": 4, "num_target_layers": BLOCKS}
"""What SpecForge's first versions wrote beside the fields of a layer."""
LIBRARY: dict[str, Any] = {
    "transformer_layer_config": {**LAYERS, "num_hidden_layers": 1},
    "block_size": 4,
    "mask_token_id": 23,
    "aux_hidden_state_layer_ids": [1, 3],
}
DEEPSPEC: dict[str, Any] = {
    **DFLASH,
    "target_layer_ids": [0, 2],
    "mask_token_id": 23,
    "architectures": ["Qwen3DSparkModel"],
    "markov_rank": 0,
}
del DEEPSPEC["dflash_config"]
MTP: dict[str, Any] = {
    "speculators_model_type": "mtp",
    "transformer_layer_config": {**LAYERS, "num_hidden_layers": BLOCKS},
}
TAPS = "eagle_aux_hidden_state_layer_ids"
MIXED = ["full_attention", "sliding_attention"]
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
}
EAGLE3: dict[str, Any] = {
    **LAYERS,
    "num_hidden_layers": 1,
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 6,
}


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A target that fits."""
    return str(plain.target_folder(tmp_path / "t")[0])


def dflash(folder: Path, **changes: object) -> Path:
    """A checkpoint that fits."""
    weights = plain.block_weights(plain.numbers(1), layers=1, taps=2)
    return plain.write(folder, {**DFLASH, **changes}, weights)


def cut(folder: Path) -> None:
    """Leaves of a file of weights what says their names and shapes."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: 8 + int.from_bytes(content[:8], "little")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, "made for 24 numbers a hidden state, and the target .* has 32"),
        ({"vocab_size": 30}, "made for 24 token ids, and the target .* has 30"),
        ({"num_hidden_layers": 2}, "reads the target's states after 3 blocks, and .* has 2"),
    ],
)
def test_another_shape_of_target(tmp_path: Path, changes: dict[str, int], message: str) -> None:
    """Width, token ids, layers; nothing of the weights is looked at."""
    target, _, _ = plain.target_folder(tmp_path / "t", **changes)
    folder = dflash(tmp_path / "d")
    cut(folder)
    with pytest.raises(NetFolderError, match=rf"is a DFlash checkpoint \(z-lab\).*{message}"):
        load_block_net(folder, target=str(target))


@pytest.mark.parametrize("how", ["missing", "left over", "shape", "type", "not finite", "twice"])
def test_other_tensors(tmp_path: Path, target: str, how: str) -> None:
    """Each is named."""
    folder = dflash(tmp_path / "d")
    path = folder / "model.safetensors"
    tensors: Tensors = load_file(path)
    name = "layers.0.mlp.up_proj.weight"
    match how:
        case "missing":
            del tensors[name]
            message = rf"missing {name}; left over nothing"
        case "left over":
            tensors["layers.1.mlp.up_proj.weight"] = torch.zeros(2)
            message = r"left over layers\.1\.mlp\.up_proj\.weight"
        case "shape":
            tensors[name] = torch.zeros(3, 4)
            message = rf"{name} is \(3, 4\); \(20, 24\) is needed"
        case "type":
            tensors[name] = tensors[name].to(torch.float8_e4m3fn)
            message = rf"{name} is .*float8_e4m3fn"
        case "not finite":
            tensors[name][0, 0] = torch.nan
            message = rf"{name} holds a number that is not finite"
        case _:
            save_file({name: tensors[name]}, folder / "model-00002-of-00002.safetensors")
            message = rf"{name} stands in another file"
    save_file(tensors, path)
    with pytest.raises(NetFolderError, match=message):
        load_block_net(folder, target=target)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**DFLASH, "architectures": ["DFlash2DraftModel"]}, "DFlash 2 has convolutions"),
        ({**LIBRARY, "speculators_model_type": "dflash2"}, "DFlash 2 has convolutions"),
        (
            {**LIBRARY, "speculators_model_type": "dspark", "sample_from_anchor": "no"},
            "sample_from_anchor is 'no'; it must be true or false",
        ),
        ({**LIBRARY, "speculators_model_type": "peagle"}, "P-EAGLE"),
        ({**LIBRARY, "speculators_model_type": "xpress"}, "'xpress', which nothing here reads"),
        ({**DEEPSPEC, "architectures": ["Gemma4DSparkModel"]}, "says Gemma4DSparkModel"),
        ({**DEEPSPEC, "markov_rank": 5, "markov_head_type": "rnn"}, "depends on the whole path"),
        ({**DFLASH, "dflash_config": {"mask_token_id": 23}}, "num_target_layers is None"),
        ({**DFLASH, "dflash_config": {"target_layer_ids": [0]}}, "mask_token_id is None"),
        ({"architectures": ["DFlashDraftModel"], **LAYERS, **BARE}, "mask_token_id is None"),
        (
            {**DFLASH, "dflash_config": {**DFLASH["dflash_config"], "projector_type": "domino"}},
            "projector_type is 'domino'",
        ),
        ({**DFLASH, "logit_scale": 2, "final_logit_softcapping": 30}, "logit_scale .* final_logit_softcapping"),
        ({**EAGLE3, "architectures": ["PEagleDraftModel"]}, "P-EAGLE .*mask_hidden"),
        ({"model_type": "mlp_speculator", "emb_dim": 24, "method": "sum_lstm"}, "method is 'sum_lstm'"),
        ({**DFLASH, "hidden_act": "relu2"}, "hidden_act is 'relu2'"),
        ({**DFLASH, "num_experts": 8}, "mixture of experts"),
        ({**DFLASH, "rope_scaling": {"rope_type": "longrope"}}, "rope_type is 'longrope'"),
        ({**DFLASH, "rope_scaling": "yarn"}, "rope_scaling is 'yarn'; an object is needed"),
        ({**DFLASH, "rope_scaling": {"rope_type": "linear"}}, "factor is None"),
        ({**DFLASH, "rope_scaling": LLAMA3}, "high_freq_factor is None"),
        (
            {**DFLASH, "rope_scaling": {**LLAMA3, "low_freq_factor": 4, "high_freq_factor": 4}},
            "low_freq_factor must be less than",
        ),
        (
            {**DFLASH, "rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
            "rotated differently in full_attention",
        ),
        ({**DFLASH, "rope_theta": 0}, "rope_theta is 0; a number greater than 0"),
        ({**DFLASH, "rms_norm_eps": "1e-6"}, "rms_norm_eps is '1e-6'"),
        ({**DFLASH, "layer_types": ["linear_attention"]}, "layer_types is .*linear_attention"),
        ({**DFLASH, "architectures": 1, "dflash_config": "x"}, "dflash_config is 'x'"),
        ({**DFLASH, "partial_rotary_factor": 0}, "partial_rotary_factor is 0; a number greater"),
        ({**DFLASH, "partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5, .* of the"),
        ({**DFLASH, "quantization_config": {"quant_method": "fp8"}}, "quantised"),
        (
            {**DFLASH, "num_hidden_layers": 2, "layer_types": MIXED, "sliding_window": 64},
            "some of its layers have a sliding window of 64",
        ),
        ({**DFLASH, "num_hidden_layers": 3, "layer_types": MIXED}, "names 2 layers, and it has 3"),
        ({**DFLASH, "layer_types": MIXED[1:]}, "sliding_window is None"),
        ({**DFLASH, "is_neox_style": False}, "is_neox_style is false"),
        ({**DFLASH, "rope_is_neox_style": False}, "rope_is_neox_style is false"),
        ({**EAGLE3}, "do not say which layers of the target are read; name the target"),
        ({**EAGLE3, "num_hidden_layers": 2, "eagle_config": {TAPS: [1]}}, "has 2 layers"),
        (
            {**EAGLE3, "eagle_config": {TAPS: [1, 2]}, TAPS: [1, 2]},
            r"outputs of the layers \[1, 2\], .* the inputs of \[1, 2\]",
        ),
        (
            {**EAGLE3, "aux_hidden_states_layer_ids": [1, 4], TAPS: [1, 4]},
            r"names the outputs of the layers \[1, 4\], and .* the inputs of \[1, 4\]",
        ),
        ({**EAGLE3, "eagle_config": [1]}, r"eagle_config is \[1\]; an object is needed"),
        ({**MTP, "num_nextn_predict_layers": 2}, "has 2 modules"),
        (
            {**MTP, "transformer_layer_config": {**LAYERS, "model_type": "qwen3_next"}},
            "layer is one of qwen3_next",
        ),
        ({"architectures": ["Qwen3NextMTP"]}, "convert it with the library speculators"),
        ({"medusa_num_heads": 2}, "make no row of heads"),
        ({**DFLASH, "medusa_num_heads": 2}, "may be a DFlash checkpoint .* or a Medusa checkpoint"),
    ],
)  # fmt: skip
def test_what_nothing_here_computes(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    """Known by name, and refused with the reason."""
    folder = plain.write(tmp_path / "d", config, {"mtp.fc.weight": torch.zeros(1)})
    with pytest.raises(UnfitCheckpoint, match=message):  # noqa: PT012 - either says it
        found = found_in(folder)
        assert found is not None
        found.translated("")


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"architectures": ["Qwen3NextMTP"]}, ["mtp.fc", "mtp.layers.0.input_layernorm"]),
        (
            {"model_type": "deepseek_mtp", "num_nextn_predict_layers": 1},
            ["model.layers.61.eh_proj", "model.layers.61.enorm", "model.embed_tokens"],
        ),
        ({"architectures": ["MiMoMTPModel"]}, ["model.mtp_layers.0.input_proj", "lm_head"]),
    ],
)
def test_modules_as_they_come_with_their_models(
    tmp_path: Path, config: dict[str, object], names: list[str]
) -> None:
    """They are told from language models, and refused with the reason; a whole model with such a module is a language model."""
    module = {f"{name}.weight": torch.zeros(1) for name in names}
    found = found_in(plain.write(tmp_path / "d", config, module))
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match="convert it with the library speculators"):
        found.translated("")
    whole = {**module, "model.layers.0.input_layernorm.weight": torch.zeros(1)}
    assert found_in(plain.write(tmp_path / "m", config, whole)) is None


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_the_first_versions_of_eagle(tmp_path: Path, name: str) -> None:
    """Their files say that they are a language model of one layer; one of those that has its norm is a language model."""
    layer = plain.layer_weights(plain.numbers(1), "layers.0", norms=False)
    del layer["layers.0.input_layernorm.weight"]
    draw = plain.numbers(2)
    tensors = {**layer, "fc.weight": draw(WIDTH, 2 * WIDTH), "fc.bias": draw(WIDTH)}
    tensors["embed_tokens.weight"] = draw(VOCAB, WIDTH)
    config = {**LAYERS, "model_type": "llama", "num_hidden_layers": 1}
    config["architectures"] = ["LlamaForCausalLM"]
    found = found_in(plain.write(tmp_path / "d", config, tensors, name))
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match="EAGLE and EAGLE-2 do; nets of EAGLE-3 run here"):
        found.translated("")
    found = found_in(plain.write(tmp_path / "v", {"model_type": "eagle"}, tensors, name))
    assert found is not None
    model = {f"model.{one}": value for one, value in layer.items()}
    assert found_in(plain.write(tmp_path / "m", config, model, name)) is None
    without = tmp_path / "w"
    plain.write(without, config, {}, name)
    (without / name).unlink()
    assert found_in(without) is None


def test_a_module_with_the_number_of_a_first_block(tmp_path: Path) -> None:
    """As SGLang's script for DeepSeek-V3 leaves it (NextN), without the model's own blocks and tables."""
    config: dict[str, object] = {"architectures": ["DeepseekV3ForCausalLMNextN"]}
    config |= {"num_nextn_predict_layers": 1, "num_hidden_layers": 1}
    names = ("eh_proj", "enorm", "hnorm", "shared_head.norm", "input_layernorm")
    tensors = {f"model.layers.0.{name}.weight": torch.zeros(1) for name in names}
    name = "nextn_layer_parameters.safetensors"
    found = found_in(plain.write(tmp_path / "d", config, tensors, name))
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match="convert it with the library speculators"):
        found.translated("")


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLMEagle3", "PEagleDraftModel", "PeagleLlamaForCausalLM"]
)
def test_a_net_for_mask_tokens_is_told_by_its_tensors(
    tmp_path: Path, target: str, name: str
) -> None:
    """P-EAGLE, also under the name of EAGLE-3, as engines want it."""
    config = {**EAGLE3, "architectures": [name]}
    folder = plain.write(tmp_path / "e", config, {"mask_hidden": torch.zeros(1)})
    found = found_in(folder)
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match=r"P-EAGLE .*mask_hidden"):
        found.translated(target)


@pytest.mark.parametrize("how", ["mask", "range", "absent"])
def test_tables_of_few_tokens_that_are_wrong(tmp_path: Path, target: str, how: str) -> None:
    """Ids that are none of the target's, or not those of the mask, or of which nothing is said."""
    drafted = [1, 2, 5, 8]
    weights = plain.block_weights(plain.numbers(1), layers=1, taps=2)
    weights |= {"lm_head.weight": torch.ones(4, WIDTH), "d2t": plain.offsets(drafted)}
    message = "stand for no distinct ids"
    if how == "mask":
        weights["t2d"] = plain.members([1, 2, 5, 9])
    elif how == "range":
        weights["d2t"] = plain.offsets([1, 2, 5, VOCAB])
    else:
        del weights["d2t"]
        message = "no table d2t says which"
    config = {**LIBRARY, "speculators_model_type": "dflash", "draft_vocab_size": 4}
    with pytest.raises(NetFolderError, match=message):
        load_block_net(plain.write(tmp_path / "d", config, weights), target=target)


def test_pieces_are_read_as_one_and_other_weights_are_another_drafter(
    tmp_path: Path, target: str
) -> None:
    """By the digest that targets are told."""
    folder = dflash(tmp_path / "d")
    whole = load_block_net(folder, target=target).state_dict()
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    for number, part in enumerate((names[:5], names[5:]), start=1):
        piece = {name: tensors[name] for name in part}
        save_file(piece, folder / f"model-0000{number}-of-00002.safetensors")
    for name, value in load_block_net(folder, target=target).state_dict().items():
        assert torch.equal(value, whole[name])
    before = folder_digest(folder)
    tensors["norm.weight"] = torch.zeros(WIDTH)
    save_file({"norm.weight": torch.zeros(WIDTH)}, folder / "model-00002-of-00002.safetensors")
    assert folder_digest(folder) != before


def test_a_language_model_is_none(tmp_path: Path) -> None:
    """It drafts as one, and a folder that is none of ours does not become one by a method's name."""
    folder, _, _ = plain.target_folder(tmp_path / "m")
    assert found_in(folder) is None
    assert loading_method(str(folder)) is None
    with pytest.raises(NetFolderError, match=r"no dspark \(model_type is 'llama'"):
        load_block_net(folder)
    (folder / "config.json").write_text(json.dumps({"speculators_model_type": "new"}))
    with pytest.raises(NetFolderError, match="'new', which nothing here reads"):
        load_block_net(folder)
