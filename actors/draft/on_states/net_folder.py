"""The folder of a draft net: `config.json`, `model.safetensors`, and a card. No code in it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import structlog
import torch
from safetensors.torch import save
from torch import nn

from outrider.actors.draft.checkpoints.checkpoint_format import Translation, UnfitCheckpoint
from outrider.actors.draft.checkpoints.tensor_files import (
    check_repeated,
    read_tensors,
    shapes_in,
    weight_files,
)
from outrider.actors.draft.checkpoints.tensor_shapes import check_shape
from outrider.actors.draft.on_states.known_formats import (
    check_names,
    config_of,
    found_in,
)
from outrider.actors.draft.on_states.net_shape import NetShape
from outrider.actors.draft.on_states.net_tables import draft_ids_of
from outrider.actors.engine.checkpoint.hub import CONFIG

WEIGHTS, CARD = "model.safetensors", "README.md"
PIECE = 1 << 24
"""Bytes that are digested at a time."""

_log = structlog.get_logger(__name__)

Shape = TypeVar("Shape", bound=NetShape)
Net = TypeVar("Net", bound=nn.Module)


class NetFolderError(ValueError):
    """A folder that cannot be loaded; the message says why."""


def read_config(folder: Path, shape: type[Shape], *, target: str = "") -> Shape:
    """The shape of the net in a folder, of our own format or another's (`known_formats`).

    Args:
        folder: Where.
        shape: What it should hold.
        target: The target that another's checkpoint has to fit, and that its own files do not name; empty: not known.

    Raises:
        NetFolderError: There is none, or it is wrong, or does not fit.
    """
    try:
        found = found_in(folder)
        if found is None:
            return shape.from_json(config_of(folder))
        translation = found.translated(target)
        for note in translation.notes:
            _log.warning("taken for granted", checkpoint=str(folder), what=note)
        return shape.from_json(translation.config)
    except UnfitCheckpoint as error:
        raise NetFolderError(str(error)) from error
    except (OSError, ValueError) as error:
        raise NetFolderError(f"{folder / CONFIG}: no {shape.kind} ({error})") from error


def load_net(folder: Path, build: Callable[[], Net], *, target: str = "") -> Net:
    """A net with the weights of a folder, as float32 (ids as int64), not to be trained.

    Shapes are compared before memory is taken for any weight, and nothing may be missing or left over.

    Args:
        folder: Where.
        build: Makes the net, of the shape that `read_config` told; called on the meta device first.
        target: As there.

    Raises:
        NetFolderError: See above; or a weight is not finite.
    """
    try:
        with torch.device("meta"):
            wanted = build().state_dict()
        found = found_in(folder)
        if found is None:
            translation = Translation(config={}, tensors={name: name for name in wanted})
            shapes = shapes_in(folder)
            check_names(translation, shapes)
        else:
            translation, shapes = found.translated(target), dict(found.checkpoint.shapes)
        loaded = _loaded(folder, wanted, translation, shapes)
    except (OSError, ValueError) as error:
        raise NetFolderError(f"{folder}: {error}; was it written for another shape?") from error
    net = build()
    net.load_state_dict(loaded)
    net.requires_grad_(False).eval()
    return net


def _loaded(
    folder: Path,
    wanted: Mapping[str, torch.Tensor],
    translation: Translation,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, torch.Tensor]:
    """A net's tensors from the files of a folder."""
    names = translation.tensors
    if differing := sorted(names.keys() ^ wanted.keys()):
        raise UnfitCheckpoint(f"the net and the files differ in {', '.join(differing)}")
    for name, value in wanted.items():
        check_shape(names[name], shapes[names[name]], tuple(value.shape))
    table, mask = translation.draft_ids, translation.draft_mask
    stored = read_tensors(folder, {*names.values(), *filter(None, (table, mask))})
    loaded: dict[str, torch.Tensor] = {}
    for name, value in wanted.items():
        given = stored[names[name]]
        if value.is_floating_point():
            loaded[name] = number_table(names[name], given)
        elif given.is_floating_point():
            raise UnfitCheckpoint(f"{names[name]} is {given.dtype}; I64 is needed")
        elif names[name] == table:
            ids = draft_ids_of(
                given, stored[mask] if mask else None, translation.config["vocab_size"]
            )
            loaded[name] = ids - torch.arange(len(ids))
        else:
            loaded[name] = given.to(torch.int64)
    check_repeated(folder, translation.repeated, shapes)
    return loaded


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
        name: value.detach()
        .to("cpu", torch.bfloat16 if value.is_floating_point() else torch.int64)
        .contiguous()
        for name, value in net.state_dict().items()
    }
    # Not by `save_file`, which does not tell a full disk from a fault.
    (partial / WEIGHTS).write_bytes(save(state, metadata={"format": "pt"}))
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
    for path in weight_files(folder):
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    return digest.hexdigest()


def number_table(name: str, value: torch.Tensor) -> torch.Tensor:
    """A stored tensor as float32.

    Raises:
        UnfitCheckpoint: It is of a type that is none of F32, F16 and BF16, or holds a number that is not finite.
    """
    if value.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise UnfitCheckpoint(f"{name} is {value.dtype}; F32, F16 or BF16 is needed")
    if not bool(value.isfinite().all()):
        raise UnfitCheckpoint(f"{name} holds a number that is not finite")
    return value.float()
