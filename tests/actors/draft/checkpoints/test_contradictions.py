"""Files that contradict themselves, and fields that are neither true nor false: each is refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.checkpoints.test_format_refusals import DEEPSPEC, DFLASH, LIBRARY
from tests.actors.draft.checkpoints.test_tensor_shapes import (
    CHECKPOINTS,
    EAGLE,
    INNER,
    MEDUSA,
    MLP,
    refused,
)
from tests.actors.draft.reference_nets import VOCAB, WIDTH, Tensors

from outrider.actors.draft.checkpoints import tensor_files
from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.draft.on_states.known_formats import found_in
from outrider.actors.draft.on_states.net_folder import NetFolderError
from outrider.cluster.config.drafter_folders import found_drafters
from outrider.cluster.config.schema import parse_config

DRAW = plain.numbers(2)
DSPARK = {**LIBRARY, "speculators_model_type": "dspark"}
SLIDING: dict[str, Any] = {
    **DFLASH,
    "layer_types": ["sliding_attention"],
    "sliding_window": 8,
}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
DRAFTED = [1, 2, 5, 8, 9, 11]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        *((EAGLE, name) for name in ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output")),
        *((config, "attention_bias") for config in (EAGLE, DFLASH)),
        *((config, "mlp_bias") for config in (EAGLE, DFLASH)),
        *((MLP, name) for name in ("tie_weights", "scale_input")),
        *((DSPARK, name) for name in ("enable_confidence_head", "confidence_head_with_markov", "sample_from_anchor")),
        *((DEEPSPEC, name) for name in ("enable_confidence_head", "confidence_head_with_markov")),
        *((SLIDING, name) for name in ("is_causal", "causal", "use_swa", "sliding_window_non_causal")),
        (MEDUSA, "original_lm_head"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["false", 0, 1, [], {}])
def test_what_is_neither_true_nor_false(
    tmp_path: Path, config: Mapping[str, Any], field: str, value: object
) -> None:
    """The word false would be taken for true."""
    tensors = {"0.0.linear.weight": torch.zeros(1), "0.1.weight": torch.zeros(1)}
    folder = plain.write(tmp_path / "d", {**config, field: value}, tensors)
    refused(folder, rf"{field} is .*; it must be true or false")


def test_a_truth_that_is_null_is_none(tmp_path: Path) -> None:
    """As if the field were not there."""
    config, tensors = CHECKPOINTS["eagle3"]
    nulls = dict.fromkeys(("norm_before_fc", "norm_before_residual", "attention_bias"))
    found = found_in(plain.write(tmp_path / "d", {**config, **nulls}, tensors))
    assert found is not None
    assert found.translated("").config["norm_before_residual"] is False


@pytest.mark.parametrize("theta", [1, 1.0, 0.5])
def test_yarn_needs_pairs_that_turn_differently(tmp_path: Path, theta: float) -> None:
    """It divides by the logarithm of the base."""
    config = {**DFLASH, "rope_theta": theta, "rope_scaling": YARN}
    refused(plain.write(tmp_path / "d", config, {}), "rope_theta is .*; yarn needs more than 1")


@pytest.mark.parametrize("num", [0, -1, VOCAB + 1])
def test_a_head_of_no_ids(tmp_path: Path, num: int) -> None:
    """0 is no way to say all of them: the file has a reduced head."""
    config, tensors = CHECKPOINTS["eagle3"]
    folder = plain.write(tmp_path / "d", {**config, "draft_vocab_size": num}, tensors)
    refused(folder, rf"draft_vocab_size is {num}; it must be 1 to {VOCAB}")


def problems(folder: Path) -> Sequence[str]:
    """What `outrider config validate` has against a drafter's folder."""
    sections = {
        "targets": [{"name": "t", "model": "demo:target"}],
        "drafters": [{"name": "d", "model": str(folder), "options": {"target": ""}}],
    }
    parsed = parse_config(sections, source="test")
    return [one.message for one in found_drafters(parsed.drafters, parsed.targets)[1]]


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("table", "mask", "message"),
    [
        (plain.offsets(DRAFTED), plain.members(DRAFTED), ""),
        (torch.tensor(DRAFTED), plain.members(DRAFTED), ""),
        (plain.offsets(DRAFTED), None, ""),
        (torch.tensor([1, 2, 5, 8, 21, 22]), None, "d2t: the 6 rows of the head stand for no"),
        (
            plain.offsets(DRAFTED),
            plain.members([]),
            "d2t and t2d: .* or not for the 0 that the mask names",
        ),
        (plain.offsets(DRAFTED), plain.members([1, 2, 5, 8, 9, 12]), "or not for the 6"),
        (plain.offsets(DRAFTED).float(), None, "table of ids is float32; whole numbers are needed"),
        (plain.offsets(DRAFTED).bfloat16(), None, "d2t: whole numbers are needed"),
        (
            plain.offsets(DRAFTED),
            plain.members(DRAFTED).bfloat16(),
            "t2d: whole numbers are needed",
        ),
    ],
)
def test_tables_of_ids_are_read_before_anything_starts(
    tmp_path: Path, table: torch.Tensor, mask: torch.Tensor | None, message: str, file: str
) -> None:
    """They are small; nothing else of the weights is."""
    tensors: Tensors = {**CHECKPOINTS["eagle3"][1], "d2t": table}
    del tensors["t2d"]
    if mask is not None:
        tensors["t2d"] = mask
    folder = plain.write(tmp_path / "d", EAGLE, tensors)
    if file.endswith(".bin"):
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / file)
    found = problems(folder)
    if not message:
        assert found == []
        return
    (said,) = found
    assert re.search(message, said), said


@pytest.mark.parametrize("change", [-1, -100, 1])
def test_a_file_of_another_size_than_its_header_says(tmp_path: Path, change: int) -> None:
    """As a download leaves it that was broken off. No weight is read."""
    folder = plain.write(tmp_path / "d", *CHECKPOINTS["z-lab"])
    assert problems(folder) == []
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:change] if change < 0 else content + bytes(change))
    (said,) = problems(folder)
    needed = len(content)
    assert f"has {needed + change} bytes, and its header says {needed}; was it downl" in said


TIED = {**MLP, "n_predict": 3, "tie_weights": True}


def tied() -> tuple[Tensors, Tensors]:
    """A speculator of three stages, and its tied weights once more."""
    first: Tensors = {
        "proj.0.weight": DRAW(INNER, WIDTH),
        "proj.1.weight": DRAW(INNER, INNER),
        "emb.0.weight": DRAW(VOCAB, INNER),
        "head.0.weight": DRAW(VOCAB, INNER),
        "ln.0.weight": DRAW(INNER),
        "ln.0.bias": DRAW(INNER),
    }
    again = {"proj.2.weight": first["proj.1.weight"].clone()}
    for name, value in first.items():
        if "proj" not in name:
            again |= {name.replace("0", str(n)): value.clone() for n in (1, 2)}
    return first, again


def write_tied(folder: Path, first: Tensors, again: Tensors, kind: str) -> None:
    """In two pieces of safetensors, or in one file of PyTorch's."""
    plain.write(folder, TIED, first)
    if kind == "safetensors":
        save_file(again, folder / "model-00002-of-00002.safetensors")
        return
    (folder / "model.safetensors").unlink()
    torch.save({**first, **again}, folder / "pytorch_model.bin")


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("name", ["proj.2.weight", "emb.2.weight", "ln.1.bias", "head.1.weight"])
def test_tied_weights_that_differ(
    tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies may be stored; one that differs, be it in its last number, is not thrown away. What is compared at a time is bounded."""
    monkeypatch.setattr(tensor_files, "COMPARED", 3 * INNER)
    first, again = tied()
    write_tied(tmp_path / "good", first, again, kind)
    load_speculator(tmp_path / "good")
    again[name].view(-1)[-1] += 1.0
    write_tied(tmp_path / "d", first, again, kind)
    read = name.replace(name.split(".")[1], "1" if "proj" in name else "0")
    with pytest.raises(NetFolderError, match=rf"{name} differs from {read}, .*tie_weights"):
        load_speculator(tmp_path / "d")


def test_tied_weights_of_another_shape(tmp_path: Path) -> None:
    """Without a look at the weights."""
    first, again = tied()
    again["emb.1.weight"] = torch.zeros(2, 2)
    write_tied(tmp_path / "d", first, again, "safetensors")
    refused(tmp_path / "d", rf"emb.1.weight is \(2, 2\); \({VOCAB}, {INNER}\) is needed")
