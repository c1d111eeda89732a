"""The folder of a draft net: `config.json`, `model.safetensors`, and a card. No code in it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
LARGEST_CONFIG = 1 << 20
"""Bytes of a `config.json`, at most."""

Config = TypeVar("Config")


class NetFolderError(ValueError):
    """A folder that cannot be loaded; the message says why."""


def read_config(folder: Path, kind: str, parse: Callable[[Mapping[str, Any]], Config]) -> Config:
    """The shape of the net in a folder.

    Args:
        folder: Where.
        kind: What it should hold, for the message.
        parse: Makes the shape of the file's content. Raises ValueError where it is wrong.

    Raises:
        NetFolderError: There is none, or it is wrong.
    """
    path = folder / CONFIG
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise ValueError(f"more than {LARGEST_CONFIG} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("not an object")  # noqa: TRY004 - it is the file that is wrong
        return parse(content)
    except (OSError, ValueError) as error:
        raise NetFolderError(f"{path}: no {kind} ({error})") from error


def load_weights(folder: Path, net: nn.Module) -> None:
    """Fills a net with the weights of a folder, as float32, and ends its training.

    Shapes and types are compared before any weight is read, and nothing may be missing or left over.

    Raises:
        NetFolderError: See above; or a weight is not finite.
    """
    wanted = net.state_dict()
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            if names != wanted.keys():
                missing, others = sorted(wanted.keys() - names), sorted(names - wanted.keys())
                raise NetFolderError(
                    f"{path}: missing {', '.join(missing) or 'nothing'}; left over "
                    f"{', '.join(others) or 'nothing'}; written for another shape?"
                )
            for name, value in wanted.items():
                check_entry(path, name, file.get_slice(name), tuple(value.shape))
            loaded = {name: file.get_tensor(name).float() for name in wanted}
    except NetFolderError:
        raise
    except Exception as error:
        raise NetFolderError(f"{path}: cannot be read ({error})") from error
    for name, value in loaded.items():
        if not bool(value.isfinite().all()):
            raise NetFolderError(f"{path}: {name} holds a number that is not finite")
    net.load_state_dict(loaded)
    net.requires_grad_(False).eval()


def save_folder(folder: Path, net: nn.Module, config: Mapping[str, Any], card: str) -> None:
    """Writes a folder, weights in bfloat16. The old one stays until the new one is whole.

    Args:
        folder: Where.
        net: The net.
        config: The content of its `config.json`.
        card: The text of its `README.md`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    retired = folder.with_name(f".{folder.name}.old")
    for left in (partial, retired):
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir()
    state = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in net.state_dict().items()
    }
    save_file(state, partial / WEIGHTS, metadata={"format": "pt"})
    (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (partial / CARD).write_text(card, encoding="utf-8")
    (partial / WEIGHTS).chmod(0o644)
    if folder.exists():
        folder.rename(retired)
    partial.rename(folder)
    shutil.rmtree(retired, ignore_errors=True)


def folder_digest(folder: Path) -> str:
    """Digest of the shape and the weights, as they lie in the folder."""
    digest = hashlib.sha256((folder / CONFIG).read_bytes())
    digest.update((folder / WEIGHTS).read_bytes())
    return digest.hexdigest()


def check_entry(path: Path, name: str, entry: Any, shape: tuple[int, ...]) -> None:
    """Refuses a tensor of a file that has another shape, or is of a type that is no floating-point one.

    Raises:
        NetFolderError: It is.
    """
    found, kind = tuple(entry.get_shape()), entry.get_dtype()
    if found != shape or kind not in ("F32", "F16", "BF16"):
        raise NetFolderError(
            f"{path}: {name} is {kind} {found}; F32, F16 or BF16 {shape} is needed"
        )
