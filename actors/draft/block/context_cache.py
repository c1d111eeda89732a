"""Keys and values of committed positions, for every layer of a draft net: a ring of the newest positions for each slot.

Rows are written once and never changed, and nothing that a block computes for its own slots is ever written here. What a row depends on is the
net's affair: with `ContextCache` on the target's states at its position and on nothing else, so that rows come in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.actors.draft.trees.forest import Int64s

NOWHERE = -1
"""Position of a row that holds nothing."""


class ContextShape(Protocol):
    """How many rows there are, and of what size."""

    @property
    def num_layers(self) -> int: ...
    @property
    def num_key_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def window(self) -> int: ...


class ContextRing:
    """Rows of so many slots."""

    def __init__(self, config: ContextShape, num_slots: int, device: torch.device) -> None:
        """Empty.

        Args:
            config: The shape of the model.
            num_slots: Slots.
            device: Where the model is.
        """
        self.device = device
        """Where the rows are."""
        self._window = config.window
        shape = (num_slots, config.window, 2, config.num_key_heads, config.head_dim)
        self._rows = torch.zeros(config.num_layers, *shape, device=device)
        self._positions_SW = np.full((num_slots, config.window), NOWHERE, np.int64)

    def newest(self, slots_E: Int64s) -> Int64s:
        """The greatest position that each slot knows; -1: none."""
        newest_E: Int64s = self._positions_SW[slots_E].max(axis=1)
        return newest_E

    def has(self, slots_N: Int64s, positions_N: Int64s) -> NDArray[np.bool_]:
        """Whether slots know positions; shapes of one size."""
        has_N: NDArray[np.bool_] = (
            self._positions_SW[slots_N, positions_N % self._window] == positions_N
        )
        return has_N

    def positions(self, slot: int) -> list[int]:
        """Positions that a slot knows, ascending."""
        held: list[int] = np.sort(self._positions_SW[slot]).tolist()
        return [position for position in held if position != NOWHERE]

    def put(self, slot: int, positions_N: Int64s, rows: Tensor) -> None:
        """Writes rows (layers, N, 2, key heads, head_dim) of positions no two of which are a window apart."""
        cells_N = positions_N % self._window
        self._rows[:, slot, torch.from_numpy(cells_N)] = rows
        self._positions_SW[slot, cells_N] = positions_N

    def forget(self, slot: int, length: int = 0) -> None:
        """Drops positions from `length` on."""
        positions_W = self._positions_SW[slot]
        positions_W[positions_W >= length] = NOWHERE

    def copy(self, source: int, destination: int, length: int) -> None:
        """Makes a slot know what another one knows of positions below `length`."""
        self._rows[:, destination] = self._rows[:, source]
        self._positions_SW[destination] = self._positions_SW[source]
        self.forget(destination, length)

    def before(self, slots_N: Int64s, anchors_N: Int64s) -> tuple[Tensor, NDArray[np.bool_]]:
        """What blocks see that begin at `anchors_N`.

        Returns:
            Keys and values (layers, N, window, 2, key heads, head_dim), and which rows count, bool [N, window].
        """
        rows, positions_NW = self.held(slots_N)
        seen_NW = (positions_NW != NOWHERE) & (positions_NW < anchors_N[:, None])
        seen_NW &= positions_NW >= anchors_N[:, None] - self._window
        return rows, seen_NW

    def held(self, slots_N: Int64s) -> tuple[Tensor, Int64s]:
        """Keys and values (layers, N, window, 2, key heads, head_dim) and their positions [N, window]."""
        return self._rows[:, torch.from_numpy(slots_N)], self._positions_SW[slots_N]


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """What was told of a slot and is not made into rows yet."""

    slot: int
    positions_N: Int64s
    known: tuple[NDArray[np.generic], ...]
    """Each [N, ..]."""


class ContextCache(ContextRing):
    """Rows that are made of what the target tells: those of all slots together, when rows are next wanted."""

    def __init__(
        self,
        config: ContextShape,
        make: Callable[..., Tensor],
        num_slots: int,
        device: torch.device,
    ) -> None:
        """Empty.

        Args:
            config: The shape of the model.
            make: Rows (layers, T, 2, key heads, head_dim) of what is known of T positions, and of these.
            num_slots: Slots.
            device: Where the model is.
        """
        super().__init__(config, num_slots, device)
        self._rows_of = make
        self._told: list[_Told] = []
        self._num_told = 0

    def write(self, slot: int, start: int, *known: NDArray[np.generic]) -> bool:
        """Takes what is known of positions from `start` on, each [T, ..], as far as they are not there and not too old.

        Returns:
            Whether any was taken.
        """
        positions_T = np.arange(start, start + len(known[0]))
        held_T = self._positions_SW[slot, positions_T % self._window]
        end = max(int(self._positions_SW[slot].max()), start + len(known[0]) - 1)
        is_new_T = (held_T < positions_T) & (positions_T > end - self._window)
        if not is_new_T.any():
            return False
        positions_N = positions_T[is_new_T]
        self._positions_SW[slot, positions_N % self._window] = positions_N
        self._told.append(_Told(slot, positions_N, tuple(each[is_new_T] for each in known)))
        self._num_told += len(positions_N)
        if self._num_told >= self._window:
            # Nobody asks for rows: what waits for them is bounded.
            self._make()
        return True

    def forget(self, slot: int, length: int = 0) -> None:
        """See `ContextRing`."""
        self._make()
        super().forget(slot, length)

    def copy(self, source: int, destination: int, length: int) -> None:
        """See `ContextRing`."""
        self._make()
        super().copy(source, destination, length)

    def held(self, slots_N: Int64s) -> tuple[Tensor, Int64s]:
        """See `ContextRing`."""
        self._make()
        return super().held(slots_N)

    @torch.inference_mode()
    def _make(self) -> None:
        """Makes rows of whatever was told."""
        told, self._told, self._num_told = self._told, [], 0
        if not told:
            return
        slots_N = np.repeat([one.slot for one in told], [len(one.positions_N) for one in told])
        positions_N = np.concatenate([one.positions_N for one in told])
        # Of two positions for one cell the newer one was told last.
        stays_N = self.has(slots_N, positions_N)
        slots, positions = (
            torch.from_numpy(each[stays_N]).to(self.device) for each in (slots_N, positions_N)
        )
        known = [
            torch.from_numpy(np.concatenate(each)[stays_N]).to(self.device)
            for each in zip(*(one.known for one in told), strict=True)
        ]
        self._rows[:, slots, positions % self._window] = self._rows_of(*known, positions)
