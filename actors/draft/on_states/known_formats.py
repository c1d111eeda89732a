"""Every format of draft checkpoints, and what a folder holds in the terms of our own nets. Without torch, as far as the files allow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.actors.draft import formats
from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.drafted_ids import ids_of_rows
from outrider.actors.draft.checkpoints.library_fields import LIBRARY, kind_of
from outrider.actors.draft.checkpoints.net_place import folder_of_config, folder_of_net
from outrider.actors.draft.checkpoints.tensor_files import check_whole, read_small, shapes_in
from outrider.actors.draft.checkpoints.tensor_shapes import check_shapes
from outrider.actors.engine.checkpoint.hub import CONFIG
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.speculation.plugins import discover

GROUP = "outrider.formats"
"""Entry points under which other packages offer formats."""

FORMATS = discover(formats, CheckpointFormat, group=GROUP)
"""Every format that is told."""

LARGEST_CONFIG = 1 << 20
"""Bytes of a `config.json`, at most."""

SCALES_ROWS = "gemma"
"""Part of the name of a family whose models multiply rows of their embedding by the root of their width when they look them up."""

MOST_NAMES = 6
"""Tensors that a message names, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A folder of another project's format."""

    format: CheckpointFormat
    checkpoint: Checkpoint
    folder: Path

    def translated(self, target: str) -> Translation:
        """What it is for us, compared with the target as far as that one is known.

        Args:
            target: The target's model as the configuration names it; empty: not known.

        Raises:
            UnfitCheckpoint: It cannot be run, or does not fit; the message says why.
        """
        shape = target_shape(target)
        try:
            translation = self.format.translate(self.checkpoint, shape)
            check_fits(translation.config, shape)
            check_borrowed(translation, shape)
            check_names(translation, self.checkpoint.shapes)
            check_shapes(translation, self.checkpoint.shapes)
        except UnfitCheckpoint as error:
            raise UnfitCheckpoint(f"{self.folder} is {self.format.title}: {error}") from None
        return translation

    def check_files(self) -> None:
        """Whether its files are whole, as far as their headers tell; no weight is read.

        Raises:
            UnfitCheckpoint: One is not.
        """
        try:
            check_whole(self.folder)
        except UnfitCheckpoint as error:
            raise UnfitCheckpoint(f"{self.folder} is {self.format.title}: {error}") from None

    def check_ids(self, translation: Translation) -> None:
        """Reads the table of a reduced head and its mask, and nothing else of the weights: whether they name ids, and the same ones.

        Args:
            translation: Its own.

        Raises:
            UnfitCheckpoint: They do not, or cannot be read.
        """
        table, mask = translation.draft_ids, translation.draft_mask
        if not table:
            return
        stored = read_small(self.folder, {table, mask} - {""})
        try:
            ids_of_rows(
                stored[table],
                stored[mask] if mask else None,
                translation.config["vocab_size"],
                is_absolute=translation.has_absolute_ids,
            )
        except ValueError as error:
            both = f"{table} and {mask}" if mask else table
            raise UnfitCheckpoint(
                f"{self.folder} is {self.format.title}: {both}: {error}"
            ) from None


def config_of(folder: Path) -> Mapping[str, Any]:
    """The content of a folder's configuration.

    Raises:
        ValueError: It is no object, or too long.
        OSError: It cannot be read.
    """
    path = folder / CONFIG
    if path.stat().st_size > LARGEST_CONFIG:
        raise ValueError(f"more than {LARGEST_CONFIG} bytes")
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not an object")  # noqa: TRY004 - it is the file that is wrong
    return content


def checkpoint_of(model: str) -> FoundCheckpoint | None:
    """The checkpoint of another project's format that a model is; None: it is none, or not to be had.

    Of a hub's model nothing but the configuration is downloaded to find out that it is none.

    Raises:
        ValueError, OSError: There is no such folder, or it is a draft net of a kind that nothing here reads.
    """
    folder = folder_of_config(model)
    if folder is None:
        return None
    if resolve_model(model).is_local:
        return found_in(folder)
    told = Checkpoint(config=config_of(folder), read_shapes=dict)
    return None if _format_of(told, folder) is None else found_in(folder_of_net(model))


def found_in(folder: Path) -> FoundCheckpoint | None:
    """The format of a folder; None: none that is known, so it is one of ours or a language model.

    Raises:
        ValueError: The configuration is unreadable, or it says that it is a draft net of a kind that nothing here knows.
        OSError: There is none.
    """
    checkpoint = Checkpoint(config=config_of(folder), read_shapes=lambda: shapes_in(folder))
    known = _format_of(checkpoint, folder)
    if known is None:
        return None
    return FoundCheckpoint(format=known, checkpoint=checkpoint, folder=folder)


def _format_of(checkpoint: Checkpoint, folder: Path) -> CheckpointFormat | None:
    told = [one for one in FORMATS.values() if one.recognises(checkpoint)]
    if len(told) > 1:
        raise UnfitCheckpoint(
            f"{folder} may be {' or '.join(one.title for one in told)}; its {CONFIG} says both"
        )
    if told:
        return told[0]
    if kind := kind_of(checkpoint):
        raise UnfitCheckpoint(
            f"{folder}: {LIBRARY} is {kind!r}, which nothing here reads; known are {', '.join(FORMATS)}"
        )
    return None


def target_shape(target: str) -> TargetShape | None:
    """The numbers of a target that a checkpoint has to fit; None: not known on this machine."""
    try:
        folder = folder_of_config(target)
        if folder is None:
            return None
        whole = config_of(folder)
    except (OSError, ValueError):
        return None
    config = whole.get("text_config") or whole
    ends = config.get("eos_token_id", whole.get("eos_token_id"))
    ends = ends if isinstance(ends, list) else [ends]
    try:
        width = int(config.get("hidden_size") or config["n_embd"])
        scales = SCALES_ROWS in str(config.get("model_type"))
        return TargetShape(
            name=target,
            vocab_size=int(config["vocab_size"]),
            width=width,
            num_blocks=int(config.get("num_hidden_layers") or config["n_layer"]),
            eos_token_ids=tuple(one for one in ends if type(one) is int),
            embedding_scale=width**0.5 if scales else 1.0,
        )
    except (KeyError, TypeError, ValueError):
        return None


def check_fits(config: Mapping[str, Any], target: TargetShape | None) -> None:
    """Refuses a net of another width or vocabulary than the target's, or one that reads layers which that one lacks.

    Raises:
        UnfitCheckpoint: The net does not fit.
    """
    if target is None:
        return
    for name, its, words in (
        ("width", target.width, "numbers a hidden state"),
        ("vocab_size", target.vocab_size, "token ids"),
    ):
        own = config.get(f"target_{name}") or config[name]
        if own != its:
            raise UnfitCheckpoint(
                f"it was made for {own} {words}, and the target {target.name} has {its}"
            )
    for layer in config.get("taps", ()):
        if type(layer) is int and layer > target.num_blocks:
            raise UnfitCheckpoint(
                f"it reads the target's states after {layer} blocks, and {target.name} has {target.num_blocks}"
            )


def check_borrowed(translation: Translation, target: TargetShape | None) -> None:
    """Refuses a net of another width than the target's that has not both tables: it cannot borrow the target's.

    Raises:
        UnfitCheckpoint: A table is missing.
    """
    config = translation.config
    if target is None or config.get("width", target.width) == target.width:
        return
    owned = {
        "embedding": translation.embedding or config.get("owns_embedding"),
        "head": translation.head or config.get("owns_head"),
    }
    if missing := [kind for kind, own in owned.items() if not own]:
        raise UnfitCheckpoint(
            f"it has no {' and no '.join(missing)}, and cannot use the table of the target {target.name}: a row has "
            f"{target.width} numbers there, and {config['width']} in the net"
        )


def check_names(translation: Translation, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a file that lacks tensors or holds some that nothing reads.

    Raises:
        UnfitCheckpoint: It does; the message names them.
    """
    missing = sorted(translation.names - shapes.keys())
    aside = translation.ignored.keys() | translation.repeated.keys()
    others = sorted(shapes.keys() - translation.names - aside)
    if missing or others:
        raise UnfitCheckpoint(f"missing {_listed(missing)}; left over {_listed(others)}")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return (", ".join(names[:MOST_NAMES]) or "nothing") + more
