"""A target of few layers that does all that the shipped one does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from outrider.actors import demo


def cut_target(folder: Path, num_layers: int) -> Path:
    """Writes the first layers of the shipped target, with its tokenizer, tables and head. Returns the folder."""
    whole = demo.path("target")
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    config = json.loads((whole / "config.json").read_text())
    weights = load_file(whole / "model.safetensors")
    cut = tuple(
        f"model.layers.{layer}." for layer in range(num_layers, config["num_hidden_layers"])
    )
    kept = {name: each for name, each in weights.items() if not name.startswith(cut)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    config["num_hidden_layers"] = num_layers
    (folder / "config.json").write_text(json.dumps(config))
    return folder
