"""Keys and values of committed positions, for every layer of a block drafter: a ring of the newest positions for each slot.

A row depends on the target's states at its position and on nothing else, so rows come in any order, each once, and are never changed.
Nothing that a block computes for its own slots is ever written here.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.actors.draft.block.block_net import BlockNet

Int64s = NDArray[np.int64]

NOWHERE = -1
"""Position of a row that holds nothing."""


class ContextCache:
    """Rows of so many slots."""

    def __init__(self, net: BlockNet, num_slots: int, device: torch.device) -> None:
        """Empty.

        Args:
            net: Makes rows of states.
            num_slots: Slots.
            device: Where the model is.
        """
        config = net.config
        self._net, self._device, self._window = net, device, config.window
        shape = (num_slots, config.window, 2, config.num_key_heads, config.head_dim)
        self._rows = torch.zeros(config.num_layers, *shape, device=device)
        self._positions_SW = np.full((num_slots, config.window), NOWHERE, np.int64)

    def newest(self, slots_E: Int64s) -> Int64s:
        """The greatest position that each slot knows; -1: none."""
        newest_E: Int64s = self._positions_SW[slots_E].max(axis=1)
        return newest_E

    def positions(self, slot: int) -> list[int]:
        """Positions that a slot knows, ascending."""
        held: list[int] = np.sort(self._positions_SW[slot]).tolist()
        return [position for position in held if position != NOWHERE]

    @torch.inference_mode()
    def write(self, slot: int, start: int, features_TLD: NDArray[np.float32]) -> bool:
        """Takes states of positions from `start` on, as far as they are not known and not too old.

        Returns:
            Whether any was taken.
        """
        positions_T = np.arange(start, start + len(features_TLD))
        held_T = self._positions_SW[slot, positions_T % self._window]
        end = max(int(self._positions_SW[slot].max()), start + len(features_TLD) - 1)
        is_new_T = (held_T < positions_T) & (positions_T > end - self._window)
        if not is_new_T.any():
            return False
        positions_N = positions_T[is_new_T]
        states = torch.from_numpy(np.ascontiguousarray(features_TLD[is_new_T])).to(self._device)
        rows = self._net.keys_values(states, torch.from_numpy(positions_N).to(self._device))
        cells_N = positions_N % self._window
        self._rows[:, slot, torch.from_numpy(cells_N)] = rows
        self._positions_SW[slot, cells_N] = positions_N
        return True

    def forget(self, slot: int, length: int = 0) -> None:
        """Drops positions from `length` on."""
        positions_W = self._positions_SW[slot]
        positions_W[positions_W >= length] = NOWHERE

    def before(self, slots_N: Int64s, anchors_N: Int64s) -> tuple[Tensor, Tensor]:
        """What blocks see that begin at `anchors_N`.

        Returns:
            Keys and values (layers, N, window, 2, key heads, head_dim), and which rows count, bool [N, window].
        """
        positions_NW = self._positions_SW[slots_N]
        seen_NW = (positions_NW != NOWHERE) & (positions_NW < anchors_N[:, None])
        seen_NW &= positions_NW >= anchors_N[:, None] - self._window
        rows = self._rows[:, torch.from_numpy(slots_N)]
        return rows, torch.from_numpy(seen_NW).to(self._device)
