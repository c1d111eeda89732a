"""All that a pass of a fixed shape depends on, as one row of integers: filled on the host, sent in one transfer.

Masks are not sent; the device makes them from what a row's ancestors are. Everything is padded with copies: a padding row is
the first row once more, computes the same numbers and writes them to the same place, and so does no harm anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.graphs.static_shape import StaticShape
from outrider.actors.engine.staging import Int64s

WORD_BITS = 32
"""Bits of a row's lineage in one integer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticInputs:
    """Views of the buffer on the device, by what they mean. Shapes: R rows, E entries, N queries of each, W words."""

    shape: StaticShape
    """The sizes."""

    tokens_R: torch.Tensor
    """Token ids."""

    positions_R: torch.Tensor
    """Positions."""

    written_R: torch.Tensor
    """Row of the storage, slots one after another, that each row's keys and values go to."""

    places_R: torch.Tensor
    """Where each row is among the padded queries, entries one after another."""

    wanted_R: torch.Tensor
    """Rows that logits are wanted for, padded with the first row."""

    lineages_RW: torch.Tensor
    """Ancestors of each row among the scratch rows of its slot, itself included: a bit each."""

    queries_EN: torch.Tensor
    """Row of each padded query; an entry's padding repeats its first row."""

    slots_E: torch.Tensor
    """Slot of each entry."""

    cached_E: torch.Tensor
    """Cached rows of its slot."""

    totals_E: torch.Tensor
    """Rows of its slot with the new ones, at least 1."""

    oldest_E: torch.Tensor
    """Least position of its rows."""


def num_integers(shape: StaticShape, words: int) -> int:
    """Length of the buffer that a shape takes."""
    return shape.rows * (5 + words) + shape.entries * (shape.longest + 4)


def views(buffer: torch.Tensor, shape: StaticShape, words: int) -> StaticInputs:
    """The meaning of a buffer's integers for a shape, in the order of `fill`."""
    rows, entries = shape.rows, shape.entries
    sizes = [*[rows] * 5, rows * words, entries * shape.longest, *[entries] * 4]
    parts = torch.split(buffer[: sum(sizes)], sizes)
    tokens, positions, written, places, wanted, lineages, queries, *of_entries = parts
    slots, cached, totals, oldest = of_entries
    return StaticInputs(
        shape=shape,
        tokens_R=tokens,
        positions_R=positions,
        written_R=written,
        places_R=places,
        wanted_R=wanted,
        lineages_RW=lineages.view(rows, words),
        queries_EN=queries.view(entries, shape.longest),
        slots_E=slots,
        cached_E=cached,
        totals_E=totals,
        oldest_E=oldest,
    )


def fill(plan: PassLayout, shape: StaticShape, *, capacity: int, words: int) -> list[Int64s]:
    """The integers of a pass.

    Args:
        plan: The pass; the shape holds it.
        shape: What it is padded to.
        capacity: Rows of a slot.
        words: Integers of a lineage.
    """
    count = plan.num_rows
    of_rows = np.zeros((5, shape.rows), dtype=np.int64)
    tokens, positions, written, places, wanted = of_rows
    tokens[:count] = plan.tokens
    positions[:count] = plan.positions
    wanted[: len(plan.wanted)] = plan.wanted
    lineages = np.empty((shape.rows, words), dtype=np.int64)
    lineages[:count] = _words(plan, words)
    queries = np.zeros((shape.entries, shape.longest), dtype=np.int64)
    of_entries = np.zeros((4, shape.entries), dtype=np.int64)
    slots, cached, totals, oldest = of_entries
    if shape.by_slot:
        slots[:] = np.arange(shape.entries)
    totals[:] = 1
    for index, segment in enumerate(plan.segments):
        entry = segment.slot if shape.by_slot else index
        start, end = plan.starts[index], plan.starts[index + 1]
        first = segment.slot * capacity + segment.cached + segment.scratch
        written[start:end] = np.arange(first, first + end - start)
        places[start:end] = np.arange(end - start) + entry * shape.longest
        queries[entry] = start
        queries[entry, : end - start] = np.arange(start, end)
        slots[entry] = segment.slot
        cached[entry] = segment.cached
        totals[entry] = segment.total
        oldest[entry] = segment.cached + min(segment.depths)
    for padded in (tokens, positions, written, places):
        padded[count:] = padded[0]
    lineages[count:] = lineages[0]
    return [of_rows.reshape(-1), lineages.reshape(-1), queries.reshape(-1), of_entries.reshape(-1)]


def _words(plan: PassLayout, words: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    num_bytes = words * (WORD_BITS // 8)
    packed = b"".join(
        [
            lineage.to_bytes(num_bytes, "little")
            for segment in plan.segments
            for lineage in segment.lineages
        ]
    )
    return np.frombuffer(packed, dtype="<u4").reshape(plan.num_rows, words)
