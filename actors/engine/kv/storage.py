"""Room for keys and values: one tensor for all layers and slots, or one for each shape of head where layers differ.

A *plane* is the keys or the values of one layer. Planes of equal shape lie in one tensor, so that moving a session's rows is
one operation for all layers. Which rows mean something is not known here.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.engine.kv.moved_rows import MovedRows
from outrider.actors.engine.staging import to_device


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneShape:
    """Heads of one layer's keys or values."""

    num_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planes:
    """Rows of some slots."""

    keys: list[torch.Tensor]
    """Of each layer, shape (slots, heads, rows, head_dim)."""

    values: list[torch.Tensor]
    """As the keys."""


def row_bytes(shapes: Sequence[tuple[PlaneShape, PlaneShape]], dtype: torch.dtype) -> int:
    """Of the keys and values of one token in all layers."""
    planes = itertools.chain.from_iterable(shapes)
    return sum(plane.num_heads * plane.head_dim * dtype.itemsize for plane in planes)


class Storage:
    """Preallocated keys and values.

    Shapes: each group (planes, slots, capacity, heads, head_dim), where capacity is the number of rows of a slot.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[PlaneShape, PlaneShape]],
        *,
        num_slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        """Allocates.

        Args:
            shapes: Keys and values of each layer.
            num_slots: Sessions.
            capacity: Rows of a session.
            dtype: Type of the numbers.
            device: Where they are.
        """
        self.num_slots = num_slots
        self.capacity = capacity
        self.dtype = dtype
        self.device = device
        planes: dict[PlaneShape, int] = {}
        places = []
        for plane in (plane for pair in shapes for plane in pair):
            places.append((plane, planes.setdefault(plane, 0)))
            planes[plane] += 1
        self._groups = [
            _zeros(
                (count, num_slots, capacity, plane.num_heads, plane.head_dim),
                dtype=dtype,
                device=device,
            )
            for plane, count in planes.items()
        ]
        self._rows = [group.flatten(1, 2) for group in self._groups]
        """Each group, the rows of one slot behind another's."""

        # One number more than there are groups: the end of the last.
        starts = itertools.accumulate(planes.values(), initial=0)
        firsts = dict(zip(planes, starts, strict=False))
        numbers = [firsts[plane] + place for plane, place in places]
        self._key_numbers, self._value_numbers = numbers[0::2], numbers[1::2]
        """Of each layer: its plane among those of all groups, one group behind another."""

        self.row_bytes = row_bytes(shapes, dtype)
        """Of a row of a slot: keys and values of all layers."""

        tensors = [plane for group in self._groups for plane in group.unbind()]
        self.keys = [tensors[number] for number in self._key_numbers]
        """Of each layer, shape (slots, capacity, heads, head_dim)."""

        self.values = [tensors[number] for number in self._value_numbers]
        """As the keys."""

        self.flat_keys = [tensor.flatten(0, 1) for tensor in self.keys]
        """Of each layer, shape (slots * capacity, heads, head_dim)."""

        self.flat_values = [tensor.flatten(0, 1) for tensor in self.values]
        """As the keys."""

    def views(self, slot: int, num_slots: int, first: int, count: int) -> Planes:
        """Views of the same rows of neighbouring slots.

        All layers at once, since slicing a layer at a time takes a pass of few rows a tenth of its time.
        """
        planes: list[torch.Tensor] = []
        for group in self._groups:
            rows = group[:, slot : slot + num_slots, first : first + count]
            planes += rows.transpose(2, 3).unbind()
        return Planes(
            keys=[planes[number] for number in self._key_numbers],
            values=[planes[number] for number in self._value_numbers],
        )

    def move(self, moved: MovedRows) -> None:
        """Puts rows elsewhere in their slots: one transfer, and two operations for each group of planes, whatever the number of slots."""
        if not len(moved.slots_N):
            return
        first_N = moved.slots_N * self.capacity
        rows_2N = np.stack((first_N + moved.targets_N, first_N + moved.sources_N))
        targets, sources = to_device(rows_2N, self.device)
        for rows in self._rows:
            rows.index_copy_(1, targets, rows.index_select(1, sources))

    def clear(self, slot: int, first: int, end: int | None = None) -> None:
        """Zeroes the rows of a slot from `first` on, up to `end` or to its last."""
        for group in self._groups:
            group[:, slot, first:end].zero_()

    def copy(self, source: int, destination: int, length: int) -> None:
        """Copies the first rows of a slot to another."""
        for group in self._groups:
            group[:, destination, :length].copy_(group[:, source, :length])


def _zeros(shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros, for a row that nobody wrote is read, masked, and must be a number.

    On a CPU the system's zero pages, which take memory only once they are written. Small ones: where pages are huge (numpy
    asks for them), the first row of a session writes one in each plane, and clearing them made a first prefill of fifteen
    rows take 60 ms instead of 8 on a virtual machine.
    """
    if device.type != "cpu":
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    octets = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # Linux; elsewhere nobody makes huge ones unasked
        octets.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(octets, dtype=dtype).view(tuple(shape))
