"""Rows of tokens with the target's hidden states at each, in files that are mapped into memory.

Memory is bounded by what is read at a time. A folder is grown row by row; killed, it goes on behind the last rows that were finished.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.loop.data_parallel import is_first, own_part
from outrider.actors.train.loop.differing_settings import refusal
from outrider.actors.train.training_errors import ResumeError

Int32s = NDArray[np.int32]

INDEX, TOKENS, FEATURES = "cache.json", "tokens.npy", "features.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """What decides every number of a cache. Another key, another cache."""

    target: str
    """Fingerprint of the target."""

    layers: tuple[Layer, ...]
    """Places in the target, see `exchange.feedback_request`; their states stand side by side."""

    width: int
    """Numbers of one layer's state."""

    row_length: int
    """Tokens of a row."""

    first: int
    """Position of a row from which on it counts: what stands before was given to the target."""

    text: str
    """Which text, in words."""

    is_half: bool = True
    """Whether states are kept as bfloat16, else as float32."""


class FeatureCache:
    """The rows that are there, and room for more."""

    def __init__(self, folder: Path, key: CacheKey, num_rows: int, *, resume: bool = True) -> None:
        """Opens a cache, or makes an empty one. Disk is taken as rows come where the file system leaves holes. Of several workers only the first one does
        anything; the others read it after `reopen`.

        Args:
            folder: Of nothing else.
            key: What it must hold.
            num_rows: Rows, at most. A cache for another number is another one.
            resume: Whether one of another key is kept, and this one refused; else it is written anew.

        Raises:
            ResumeError: The folder holds a file that cannot be read, or another cache.
        """
        self.key, self._folder, self.room = key, folder, num_rows
        self.num_rows = 0
        """Rows that are finished."""
        self._wanted = {**json.loads(json.dumps(asdict(key))), "room": num_rows}
        if not is_first():
            return
        found, done = self._found()
        if found == self._wanted:
            self.num_rows = done
        elif found and resume:
            saved, present = (json.dumps(one, sort_keys=True) for one in (found, self._wanted))
            raise ResumeError(refusal(folder / INDEX, saved, present))
        elif found:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._map("r+" if self.num_rows else "w+")

    def reopen(self) -> None:
        """Finds the rows that another worker has added.

        Raises:
            ResumeError: They are not there, or of another cache.
        """
        found, self.num_rows = self._found()
        if found != self._wanted:
            raise ResumeError(
                f"{self._folder}: not what the first worker wrote; give an --out that every node reaches"
            )
        self._map("r")

    def _found(self) -> tuple[dict[str, Any], int]:
        """What the folder holds, and how many rows; nothing if there is none."""
        index = self._folder / INDEX
        if not index.exists():
            return {}, 0
        try:
            found: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
            return found, int(found.pop("rows"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ResumeError(f"{index}: unreadable ({error}); delete the folder") from error

    def _map(self, mode: Literal["r", "r+", "w+"]) -> None:
        key, folder = self.key, self._folder
        kind = np.dtype(np.int16 if key.is_half else np.float32)
        shape = (self.room, key.row_length, len(key.layers) * key.width)
        self._tokens_NL = _mapped(folder / TOKENS, mode, np.dtype(np.int32), shape[:2])
        self._features_NLD = _mapped(folder / FEATURES, mode, kind, shape)

    def append(self, tokens_BL: Int32s, features_BLD: torch.Tensor) -> None:
        """Adds rows, as far as there is room; on return they are on disk.

        Args:
            tokens_BL: Token ids.
            features_BLD: Hidden states at them, the layers side by side.

        Raises:
            OSError: The disk is full, or cannot be written.
        """
        count = min(len(tokens_BL), self.room - self.num_rows)
        states = features_BLD[:count].detach().cpu()
        states = states.to(torch.bfloat16).view(torch.int16) if self.key.is_half else states.float()
        _write(self._tokens_NL, self.num_rows, tokens_BL[:count])
        _write(self._features_NLD, self.num_rows, states.numpy())
        self.num_rows += count
        path = self._folder / INDEX
        partial = path.with_name(path.name + ".partial")
        with partial.open("w", encoding="utf-8") as handle:
            json.dump({**self._wanted, "rows": self.num_rows}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)

    def rows(self, rows_B: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Some rows: token ids int64 [B, L] and states float32 [B, L, D]."""
        tokens_BL = torch.from_numpy(self._tokens_NL[rows_B].astype(np.int64))
        states = torch.from_numpy(np.ascontiguousarray(self._features_NLD[rows_B]))
        if self.key.is_half:
            states = states.view(torch.bfloat16)
        return tokens_BL, states.float()


def _write(rows_N: np.memmap[Any, Any], first: int, new: NDArray[Any]) -> None:
    """Writes rows into the file of a map, which shows them: on a full disk a write fails, but storing into the map ends the process."""
    assert rows_N.filename is not None, "made from a path"
    with open(rows_N.filename, "r+b") as file:
        file.seek(rows_N.offset + first * rows_N[:1].nbytes)
        file.write(np.ascontiguousarray(new, rows_N.dtype).data)
        file.flush()
        os.fsync(file.fileno())


def _mapped(
    path: Path, mode: Literal["r", "r+", "w+"], kind: np.dtype[Any], shape: tuple[int, ...]
) -> np.memmap[Any, np.dtype[Any]]:
    """A file as an array. One that is there must be whole: opened for writing, a short one would be filled up with zeros."""
    try:
        if mode != "w+":
            found = open_memmap(path, "r")
            if (found.dtype, found.shape) != (kind, shape):
                raise ValueError(f"{found.dtype} {found.shape} in place of {kind} {shape}")
        return open_memmap(path, mode, kind, shape)
    except (FileNotFoundError, EOFError, ValueError) as error:
        raise ResumeError(
            f"{path}: not what {INDEX} beside it says ({error}); delete the folder"
        ) from error


def shuffled(step: int, count: int, num_rows: int, seed: int) -> NDArray[np.int64]:
    """This worker's rows of a step: every row once before any comes again, in an order fixed by the seed.

    Args:
        step: From 0 on.
        count: Rows of a step, of all workers.
        num_rows: Rows that there are.
        seed: Of the order.
    """
    places = np.arange(step * count, (step + 1) * count)
    rounds, within = places // num_rows, places % num_rows
    rows = np.empty(count, np.int64)
    for number in np.unique(rounds).tolist():
        order = np.random.default_rng([seed, number]).permutation(num_rows)
        rows[rounds == number] = order[within[rounds == number]]
    return own_part(rows)
