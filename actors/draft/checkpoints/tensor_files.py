"""Tensors in the files of a folder, in one or several pieces: safetensors, else PyTorch's own files, of which nothing but tensors is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.checkpoints.checkpoint_format import UnfitCheckpoint

if TYPE_CHECKING:
    import torch

KINDS = ("*.safetensors", "pytorch_model*.bin", "*_lm_head.pt")
"""Names of files with weights. Those of the first kind that there are any of count, so that no tensor is met twice."""

MASK_FILE, MASK_TENSOR = "mask_embedding.pt", "mask_embedding"
"""A file with the row of the mask token alone, beside the others, and what the tensor in it is called here. DFlash nets have it that trained this row."""

NET_FILES = ("config.json", *KINDS, MASK_FILE)
"""Names of all files of a draft net."""

COMPARED = 1 << 22
"""Numbers that are compared at a time."""

LARGEST_HEADER = 100 << 20
"""Bytes of a safetensors header, at most; as in the library."""


def weight_files(folder: Path) -> list[Path]:
    """The files of a folder that hold its tensors; empty: it has none."""
    for kind in KINDS:
        if files := sorted(folder.glob(kind)):
            return [*files, *folder.glob(MASK_FILE)]
    return []


def shapes_in(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a folder, by name. Safetensors are read without torch.

    Raises:
        UnfitCheckpoint: There is none, one cannot be read, or a name stands in two of them.
    """
    found: dict[str, tuple[int, ...]] = {}
    if not (files := weight_files(folder)):
        raise UnfitCheckpoint(f"no file of weights: none of {', '.join(KINDS)}")
    for path in files:
        try:
            shapes = (
                _header(path)
                if path.suffix == ".safetensors"
                else {name: tuple(value.shape) for name, value in pickled(path)}
            )
        except Exception as error:
            raise UnfitCheckpoint(f"{path}: cannot be read ({error})") from error
        if twice := found.keys() & shapes.keys():
            raise UnfitCheckpoint(f"{path}: {min(twice)} stands in another file, too")
        found.update(shapes)
    return found


def read_tensors(folder: Path, names: Collection[str]) -> dict[str, torch.Tensor]:
    """Some tensors of a folder, as they are stored.

    Raises:
        UnfitCheckpoint: One is not there, or cannot be read.
    """
    from safetensors import safe_open

    found: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    for name in set(names) & set(file.keys()):
                        found[name] = file.get_tensor(name)
            else:
                found.update((name, value) for name, value in pickled(path) if name in names)
        except Exception as error:
            raise UnfitCheckpoint(f"{path}: cannot be read ({error})") from error
    if missing := set(names) - found.keys():
        raise UnfitCheckpoint(f"{folder}: missing {', '.join(sorted(missing))}")
    return found


def read_small(folder: Path, names: Collection[str]) -> dict[str, NDArray[np.generic]]:
    """Likewise small ones of whole numbers; safetensors without torch.

    Raises:
        UnfitCheckpoint: One is not there, or cannot be read.
    """
    from safetensors import safe_open

    found: dict[str, NDArray[np.generic]] = {}
    for path in weight_files(folder):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="np") as file:
                    for name in set(names) & set(file.keys()):
                        found[name] = _small(path, name, partial(file.get_tensor, name))
            else:
                tensors = ((name, value) for name, value in pickled(path) if name in names)
                found.update((name, _small(path, name, value.numpy)) for name, value in tensors)
        except UnfitCheckpoint:
            raise
        except Exception as error:
            raise UnfitCheckpoint(f"{path}: cannot be read ({error})") from error
    if missing := set(names) - found.keys():
        raise UnfitCheckpoint(f"{folder}: missing {', '.join(sorted(missing))}")
    return found


def _small(path: Path, name: str, read: Callable[[], NDArray[np.generic]]) -> NDArray[np.generic]:
    try:
        return read()
    except TypeError as error:
        # NumPy has no type for it; of those that files have, none holds whole numbers.
        raise UnfitCheckpoint(f"{path}: {name}: whole numbers are needed ({error})") from error


def check_repeated(
    folder: Path, repeated: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Compares tensors that are stored more than once, some rows at a time.

    Args:
        folder: Where.
        repeated: The name of a copy, which need not be there, and of the tensor that it is one of.
        shapes: Of all tensors; those of both are the same.

    Raises:
        UnfitCheckpoint: A copy differs, or cannot be read.
    """
    if not any(name in shapes for name in repeated):
        return
    import torch
    from safetensors import safe_open

    names = {*repeated, *repeated.values()}
    with ExitStack() as opened:
        found: dict[str, Any] = {}
        for path in weight_files(folder):
            if path.suffix == ".safetensors":
                file = opened.enter_context(safe_open(path, framework="pt"))
                found |= {name: file.get_slice(name) for name in names & set(file.keys())}
            else:
                found |= {name: value for name, value in pickled(path) if name in names}
        for name, first in repeated.items():
            if name not in found:
                continue
            count, *rest = shapes[name]
            rows = max(1, COMPARED // max(1, math.prod(rest)))
            for at in range(0, count, rows):
                one, other = (found[each][at : at + rows].float() for each in (name, first))
                if not torch.equal(one, other):
                    raise UnfitCheckpoint(
                        f"{name} differs from {first}, and the configuration says that they are tied (tie_weights); "
                        "one of both is wrong"
                    )


def check_whole(folder: Path) -> None:
    """Compares the size of each safetensors file of a folder with what its header says. PyTorch's files cannot be told otherwise than by reading them.

    Raises:
        UnfitCheckpoint: One is shorter, as a download leaves it that was broken off, or longer; or its header is wrong.
    """
    for path in weight_files(folder):
        if path.suffix != ".safetensors":
            continue
        try:
            begin, header = _content(path)
            ends = [int(entry["data_offsets"][1]) for entry in header.values()]
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise UnfitCheckpoint(f"{path}: cannot be read ({error})") from error
        size, needed = path.stat().st_size, begin + max(ends, default=0)
        if size != needed:
            raise UnfitCheckpoint(
                f"{path} has {size} bytes, and its header says {needed}; was it downloaded whole?"
            )


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    return {name: tuple(entry["shape"]) for name, entry in _content(path)[1].items()}


def _content(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the numbers of a safetensors file begin, and what its header says of each tensor."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size <= LARGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        header: Mapping[str, Any] = json.loads(file.read(size))
    if not isinstance(header, Mapping):
        raise ValueError("its header is no object")  # noqa: TRY004 - it is the file that is wrong
    return 8 + size, {name: entry for name, entry in header.items() if name != "__metadata__"}


def pickled(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a file of PyTorch's; the weights themselves stay on disk until they are used."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:
        # A file of before 1.6, which cannot be mapped.
        content = torch.load(path, map_location="cpu", weights_only=True)
    if path.name == MASK_FILE:
        row = content.get("embedding") if isinstance(content, Mapping) else content
        content = {MASK_TENSOR: row.flatten()} if isinstance(row, torch.Tensor) else None
    if not isinstance(content, Mapping):
        raise UnfitCheckpoint(f"{path} holds no table of tensors")
    for name, value in content.items():
        if isinstance(value, torch.Tensor):
            yield str(name), value
