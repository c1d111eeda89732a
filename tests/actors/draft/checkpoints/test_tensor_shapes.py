"""Sizes that a configuration says and its files do not have: each is named, before a weight is read or memory is taken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.block.small_block import small_config, small_net
from tests.actors.draft.checkpoints.test_format_refusals import DFLASH, EAGLE3, TAPS
from tests.actors.draft.checkpoints.test_library import RECORDED, REFUSED
from tests.actors.draft.reference_nets import VOCAB, WIDTH, Tensors

from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.checkpoints.checkpoint_format import UnfitCheckpoint
from outrider.actors.draft.on_states.known_formats import found_in
from outrider.actors.draft.on_states.net_folder import NetFolderError, save_folder
from outrider.cluster.config.drafter_folders import found_drafters
from outrider.cluster.config.schema import parse_config

INNER, ROWS, HUGE = 16, 6, 1_000_000_000
UNUSED = ("verifier_norm.weight", "verifier_lm_head.weight")
DRAW = plain.numbers(1)
MLP: dict[str, Any] = {
    "model_type": "mlp_speculator",
    "vocab_size": VOCAB,
    "emb_dim": WIDTH,
    "inner_dim": INNER,
    "n_predict": 2,
}
MEDUSA: dict[str, Any] = {"medusa_num_heads": 2, "vocab_size": VOCAB}
EAGLE: dict[str, Any] = {**EAGLE3, "eagle_config": {TAPS: [1, 3]}}


def _mlp() -> Tensors:
    found: Tensors = {"proj.0.weight": DRAW(INNER, WIDTH), "proj.1.weight": DRAW(INNER, INNER)}
    for n in range(2):
        found |= {f"{kind}.{n}.weight": DRAW(VOCAB, INNER) for kind in ("emb", "head")}
        found |= {f"ln.{n}.{part}": DRAW(INNER) for part in ("weight", "bias")}
    return found


def _eagle() -> Tensors:
    return {
        **plain.layer_weights(DRAW, "midlayer", reads=2, norms=False),
        "fc.weight": DRAW(WIDTH, 2 * WIDTH),
        "midlayer.hidden_norm.weight": DRAW(WIDTH),
        "norm.weight": DRAW(WIDTH),
        "lm_head.weight": DRAW(ROWS, WIDTH),
        "d2t": torch.zeros(ROWS, dtype=torch.int64),
        "t2d": torch.ones(VOCAB, dtype=torch.bool),
    }


def _medusa() -> Tensors:
    return {
        **{f"{head}.0.linear.weight": DRAW(WIDTH, WIDTH) for head in range(2)},
        **{f"{head}.0.linear.bias": DRAW(WIDTH) for head in range(2)},
        **{f"{head}.1.weight": DRAW(VOCAB, WIDTH) for head in range(2)},
    }


def _recorded(name: str) -> tuple[Mapping[str, Any], Tensors]:
    shapes = RECORDED[name]["shapes"].items()
    return RECORDED[name]["config"], {one: torch.zeros(shape) for one, shape in shapes}


CHECKPOINTS: dict[str, tuple[Mapping[str, Any], Tensors]] = {
    "z-lab": (DFLASH, plain.block_weights(DRAW, layers=1, taps=2)),
    "eagle3": (EAGLE, _eagle()),
    "medusa": (MEDUSA, _medusa()),
    "mlp": (MLP, _mlp()),
    **{name: _recorded(name) for name in RECORDED if name not in REFUSED},
}
FIRST = {"medusa": {"0.1.weight"}}
"""What says the sizes of a net whose configuration does not: then it is the others that differ."""


def refused(folder: Path, match: str) -> None:
    """Says why a checkpoint is not run."""
    found = found_in(folder)
    assert found is not None
    with pytest.raises(UnfitCheckpoint, match=match):
        found.translated("")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_tensor_of_another_shape_is_named(tmp_path: Path, name: str) -> None:
    """With its shape and the one that is needed."""
    config, tensors = CHECKPOINTS[name]
    good = found_in(plain.write(tmp_path / "good", config, tensors))
    assert good is not None
    good.translated("")
    for number, (one, value) in enumerate(tensors.items()):
        if one in UNUSED or one in FIRST.get(name, ()):
            continue
        other = torch.zeros(*value.shape, 2)
        folder = plain.write(tmp_path / str(number), config, {**tensors, one: other})
        is_shape = rf"\({', '.join(map(str, other.shape))}\)"
        refused(folder, rf"{one} is {is_shape}; \({value.shape[0]},.*\) is needed")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("z-lab", {"intermediate_size": HUGE}, r"gate_proj.weight is \(20, 24\); \(1000000000, 24"),
        ("z-lab", {"num_hidden_layers": HUGE}, "num_hidden_layers is 1000000000; it must be 1 to"),
        ("z-lab", {"block_size": HUGE}, "block_size is 1000000000; it must be 1 to 1024"),
        ("z-lab", {"block_size": 0}, "block_size is 0; it must be 1 to 1024"),
        ("eagle3", {"intermediate_size": HUGE}, r"gate_proj.weight is .*; \(1000000000, 24\)"),
        ("eagle3", {"draft_vocab_size": 7}, r"(d2t|lm_head.weight) is \(6.*; \(7"),
        ("mlp", {"inner_dim": HUGE}, r"proj.0.weight is \(16, 24\); \(1000000000, 24\) is needed"),
        ("mlp", {"n_predict": HUGE}, "n_predict is 1000000000; it must be 1 to 1024"),
    ],
)  # fmt: skip
def test_sizes_that_the_files_do_not_have(
    tmp_path: Path, name: str, changes: dict[str, int], message: str
) -> None:
    """What a tensor's shape says is compared; what none says has a bound."""
    config, tensors = CHECKPOINTS[name]
    folder = plain.write(tmp_path / "d", {**config, **changes}, tensors)
    refused(folder, message)


def test_a_configuration_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """As `outrider config validate` and `serve` look at it."""
    config, tensors = CHECKPOINTS["z-lab"]
    folder = plain.write(tmp_path / "d", {**config, "intermediate_size": HUGE}, tensors)
    sections = {
        "targets": [{"name": "t", "model": "demo:target"}],
        "drafters": [{"name": "d", "model": str(folder), "options": {"target": ""}}],
    }
    parsed = parse_config(sections, source="test")
    _, problems = found_drafters(parsed.drafters, parsed.targets)
    assert [one.path for one in problems] == ["drafters[0].model"]
    assert "gate_proj.weight is (20, 24); (1000000000, 24) is needed" in problems[0].message


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("z-lab", ["embedding", "head"]),
        ("z-lab", ["embedding"]),
        ("eagle3", ["embedding"]),
        ("eagle3", []),
    ],
)
def test_tables_of_the_target_that_do_not_fit(tmp_path: Path, name: str, lacks: list[str]) -> None:
    """A net of another width needs both of its own. Only shapes are looked at."""
    target, _, _ = plain.target_folder(tmp_path / "t", hidden_size=10, num_hidden_layers=12)
    config, tensors = CHECKPOINTS[name]
    tensors = {**tensors, "fc.weight": DRAW(WIDTH, 2 * 10)}
    if "embedding" not in lacks:
        tensors["embed_tokens.weight"] = DRAW(VOCAB, WIDTH)
    if "head" not in lacks:
        tensors.setdefault("lm_head.weight", DRAW(VOCAB, WIDTH))
    folder = plain.write(tmp_path / "d", {**config, "target_hidden_size": 10}, tensors)
    found = found_in(folder)
    assert found is not None
    if not lacks:
        found.translated(str(target))
        return
    said = rf"it has no {' and no '.join(lacks)}, .* has 10 numbers there, and 24 in the net"
    with pytest.raises(UnfitCheckpoint, match=said):
        found.translated(str(target))


@pytest.mark.parametrize("num", [4, VOCAB])
def test_a_number_of_drafted_ids_that_its_table_contradicts(tmp_path: Path, num: int) -> None:
    """Files of the library: one of both is wrong, and nobody knows which."""
    config, tensors = CHECKPOINTS["z-lab"]
    library = {
        "speculators_model_type": "dflash",
        "transformer_layer_config": {**config, "dflash_config": None},
        "block_size": 4,
        "mask_token_id": 23,
        "aux_hidden_state_layer_ids": [1, 3],
        "draft_vocab_size": num,
    }
    tables = {"lm_head.weight": torch.ones(3, WIDTH), "d2t": plain.offsets([1, 2, 5])}
    folder = plain.write(tmp_path / "d", library, {**tensors, **tables})
    refused(folder, rf"draft_vocab_size is {num}, and its table d2t is \(3,\); \({num},\) is")


@pytest.mark.parametrize(
    ("fields", "value", "message"),
    [
        (
            ("num_heads", "head_dim"),
            1 << 24,
            r"q_proj\.weight is .*; \(281474976710656, 24\) is needed",
        ),
        (("inner",), HUGE, "inner is 1000000000; it must be a whole number of 1 to 16777216"),
        (("block",), HUGE, "block is 1000000000; it must be a whole number of 1 to 1024"),
        (("num_layers",), HUGE, "num_layers is 1000000000; it must be a whole number of 1 to 1024"),
        (("window",), HUGE, "window is 1000000000; it must be a whole number of 1 to 65536"),
    ],
)
def test_sizes_of_nets_that_were_made_here(
    tmp_path: Path, fields: tuple[str, ...], value: int, message: str
) -> None:
    """No memory is taken for a net that no file fills: there would not be enough."""
    target, _, _ = plain.target_folder(tmp_path / "t")
    folder = tmp_path / "d"
    save_folder(folder, small_net(small_config()), small_config().as_json(), "")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **dict.fromkeys(fields, value)}))
    with pytest.raises(NetFolderError, match=message):
        load_block_net(folder, target=str(target))
