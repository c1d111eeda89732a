"""The folder of a block drafter: written, read, and refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.actors.draft.block.small_block import small_config, small_net

from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.on_states.net_folder import NetFolderError, folder_digest, save_folder
from outrider.actors.draft.on_states.target_tables import digest_of

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A drafter beside its target."""
    net = small_net(small_config(target="../target", most_revealed=2))
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")
    table = torch.randn(24, 24, generator=torch.Generator().manual_seed(0))
    save_file({"model.embed_tokens.weight": table}, target / WEIGHTS)
    save_folder(tmp_path / "drafter", net, net.config.as_json(), "# A card\n")
    return tmp_path / "drafter"


def test_what_is_written_is_read(folder: Path) -> None:
    """Weights in half the bytes, and the target's tables from the target."""
    net = load_block_net(folder)
    written = load_file(folder / WEIGHTS)
    assert net.config.most_revealed == 2
    assert all(one.dtype == torch.bfloat16 for one in written.values())
    assert not any("embed_tokens" in name or "lm_head" in name for name in written)
    for name, value in net.state_dict().items():
        assert torch.equal(value, written[name].float())
    table = load_file(folder.parent / "target" / WEIGHTS)["model.embed_tokens.weight"]
    states = torch.randn(3, 24)
    torch.testing.assert_close(net.unary(states), states @ table.T)


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
    ],
)
@pytest.mark.parametrize("name", ["pytorch_model-0000{}-of-00002.bin", "model-0000{}.safetensors"])
def test_tables_of_targets_of_other_files(
    folder: Path, embedding: str, head: str, name: str
) -> None:
    """Models that see, too, call them otherwise, and Vicuna is stored in PyTorch's files."""
    target = folder.parent / "target"
    tables = load_file(target / WEIGHTS)["model.embed_tokens.weight"], torch.randn(24, 24)
    (target / WEIGHTS).unlink()
    seen = {"vision_tower.embeddings.patch_embedding.weight": torch.ones(3, 2)}
    pieces = {**seen, embedding: tables[0]}, {head: tables[1]}
    for number, piece in enumerate(pieces, start=1):
        path = target / name.format(number)
        torch.save(piece, path) if path.suffix == ".bin" else save_file(piece, path)
    net = load_block_net(folder)
    states = torch.randn(3, 24)
    torch.testing.assert_close(net.unary(states), states @ tables[1].T)


def test_other_weights_are_another_drafter(folder: Path) -> None:
    """By the digest that targets are told."""
    before = folder_digest(folder)
    net = small_net(small_config(target="../target"), seed=1)
    save_folder(folder, net, net.config.as_json(), "")
    assert folder_digest(folder) != before


def test_wrong_folders_are_refused_before_weights_are_read(folder: Path) -> None:
    """Missing, left over, misshapen, not finite, of another kind: each by name."""

    def refused(match: str) -> None:
        with pytest.raises(NetFolderError, match=match):
            load_block_net(folder)

    good = load_file(folder / WEIGHTS)
    save_file({k: v for k, v in good.items() if k != "fc.weight"}, folder / WEIGHTS)
    refused(r"missing fc\.weight")
    save_file({**good, "lm_head.weight": torch.zeros(2)}, folder / WEIGHTS)
    refused(r"left over lm_head\.weight")
    save_file({**good, "fc.weight": torch.zeros(24, 24)}, folder / WEIGHTS)
    refused(r"fc\.weight is \(24, 24\)")
    save_file({**good, "fc.weight": good["fc.weight"] * float("nan")}, folder / WEIGHTS)
    refused(r"fc\.weight holds a number that is not finite")
    (folder / WEIGHTS).write_bytes(b"nothing")
    refused("cannot be read")
    save_file(good, folder / WEIGHTS)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "target": ""}))
    refused("does not name")
    (folder / "config.json").write_text(json.dumps({**config, "width": 12}))
    refused("target|embed_tokens")
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    refused("no dspark")


def test_another_targets_tables_are_refused(folder: Path) -> None:
    """Of the same shape: nothing else would show it but that nothing is foreseen."""
    table = load_file(folder.parent / "target" / WEIGHTS)["model.embed_tokens.weight"]
    config = json.loads((folder / "config.json").read_text())
    for tables_digest in (digest_of(table, table), digest_of(table, 2.0 * table)):
        (folder / "config.json").write_text(json.dumps({**config, "tables_digest": tables_digest}))
        if tables_digest == digest_of(table, table):
            load_block_net(folder)
    with pytest.raises(NetFolderError, match="was trained for another target"):
        load_block_net(folder)
