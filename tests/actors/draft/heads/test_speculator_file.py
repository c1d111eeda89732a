"""Folders of speculators: written and read back, and everything refused that does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.actors.draft.heads.nets import random_net

from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.on_states.net_folder import NetFolderError, save_folder
from outrider.actors.draft.on_states.target_tables import digest_of

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A speculator with tables of its own."""
    net = random_net()
    save_folder(tmp_path / "s", net, net.config.as_json(), "# A card\n")
    return tmp_path / "s"


def test_what_was_written_is_read_back(folder: Path) -> None:
    """The shape, the weights as bfloat16 has them, and the card; the folder tells its method."""
    net = load_speculator(folder)
    assert net.config == random_net().config
    for name, value in random_net().state_dict().items():
        assert torch.equal(net.state_dict()[name], value.bfloat16().float())
    assert (folder / "README.md").read_text() == "# A card\n"
    assert loading_method(str(folder)) == "mlp_speculator"
    assert loading_method("demo:draft") is None
    assert loading_method("someone/on-a-hub") is None


def test_tables_of_the_target_are_not_stored(tmp_path: Path) -> None:
    """They come from the target's own files, in float32, embedding and head alike where it ties them."""
    config = SpeculatorConfig(vocab_size=4096, width=160, inner=8, target="demo:target")
    table = torch.zeros(4096, 160)
    net = SpeculatorNet(config, embedding_VD=table, head_VD=table)
    save_folder(tmp_path, net, config.as_json(), "")
    assert (tmp_path / "model.safetensors").stat().st_size < 20_000
    net = load_speculator(tmp_path)
    vectors, head_VD = net.head(0, torch.ones(8))
    assert vectors.shape == (160,)
    assert head_VD.shape == (4096, 160)
    assert head_VD.std() > 0.01
    edited(tables_digest=digest_of(head_VD, head_VD))(tmp_path)
    load_speculator(tmp_path)
    edited(tables_digest=digest_of(head_VD, 2.0 * head_VD))(tmp_path)
    with pytest.raises(NetFolderError, match="trained for another target than demo:target"):
        load_speculator(tmp_path)


def spoilt(change: Callable[[Tensors], object]) -> Callable[[Path], None]:
    """Changes the weights of a folder."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return spoil


def edited(**changes: object) -> Callable[[Path], None]:
    """Changes the configuration of a folder."""

    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoilt(lambda t: t.pop("first.weight")), "missing first.weight"),
        (spoilt(lambda t: t.update(extra=torch.zeros(1))), "left over extra"),
        (spoilt(lambda t: t.update({"first.weight": torch.zeros(16, 13)})), r"first.weight is \(16, 13\)"),
        (spoilt(lambda t: t.update({"first.weight": torch.zeros(16, 12, dtype=torch.int32)})), "int32"),
        (spoilt(lambda t: t["first.weight"].fill_(float("nan"))), "not finite"),
        (edited(inner=17), r"\(17"),
        (edited(inner=0), "inner is 0"),
        (edited(inner=True), "inner is True"),
        (edited(tables="theirs"), "tables is 'theirs'"),
        (edited(feeds="feature"), "needs tables"),
        (edited(colour="red"), "unknown: colour"),
        (edited(model_type="llama"), "model_type is 'llama'"),
        (edited(eos_token_ids=["end"]), "eos_token_ids"),
        (edited(tables="target"), "does not name"),
        (edited(tables="target", target="demo:target"), r"\(24, 12\) is needed"),
        (edited(tables="target", target="law:agree70"), "name a folder"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no file of weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64), "cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "not an object"),
        (lambda folder: (folder / "config.json").unlink(), "no mlp_speculator"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(
    folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    """Nothing is loaded by halves."""
    spoil(folder)
    with pytest.raises(NetFolderError, match=message):
        load_speculator(folder)
