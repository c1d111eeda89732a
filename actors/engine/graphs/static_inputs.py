"""All that a pass of a fixed shape depends on, as one row of integers: filled on the host, sent in one transfer.

Masks are sent as bits, one for each row of the slot that a row may see, and spread over the padded queries by the device
(`static_attention.py`). Everything is padded with copies: a padding row is the first row once more, computes the same numbers
and writes them to the same place, and so does no harm anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.engine.attention.attention_mask import first_seen, num_words, sight_bits
from outrider.actors.engine.attention.pass_layout import NOBODY, PassLayout
from outrider.actors.engine.graphs.static_shape import MOST_PADDED, ROWS, StaticShape
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import Int64s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticMask:
    """What layers of one window are told. Shapes: R rows, E entries."""

    shown: int
    """Rows of a slot that are shown: all of the shape, or what a window and the scratch rows reach."""

    firsts_E: torch.Tensor
    """The first of these."""

    octets_RB: torch.Tensor
    """What each row sees of them, eight rows of the slot in an integer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticInputs:
    """Views of the buffer on the device, by what they mean. Shapes: R rows, E entries, N queries of each."""

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

    queries_Q: torch.Tensor
    """Row of each padded query; an entry's padding repeats its first row. Shape (E * N,)."""

    slots_E: torch.Tensor
    """Slot of each entry."""

    totals_E: torch.Tensor
    """Rows of its slot with the new ones, at least 1."""

    masks: dict[int | None, StaticMask]
    """By window."""


class StaticLayout:
    """Where in the buffer what lies, for one engine."""

    def __init__(
        self, storage: Storage, *, windows: Sequence[int | None], max_scratch: int
    ) -> None:
        """Takes what all passes share.

        Args:
            storage: Keys and values.
            windows: Sliding window of each layer.
            max_scratch: Scratch rows of a slot, at most.
        """
        self._capacity, self._max_scratch = storage.capacity, max_scratch
        self._windows = list(dict.fromkeys(windows))
        words = sum(num_words(self._shown(storage.capacity, window)) for window in self._windows)
        most_entries = min(storage.num_slots, MOST_PADDED)
        self.most_integers = (
            ROWS[-1] * (5 + words)
            + max(ROWS[-1], MOST_PADDED)
            + most_entries * (2 + len(self._windows))
        )
        """Integers of the greatest shape."""

    def views(self, buffer: torch.Tensor, shape: StaticShape) -> StaticInputs:
        """The meaning of a buffer's integers for a shape, in the order of `fill`."""
        rows, entries = shape.rows, shape.entries
        words = [num_words(self._shown(shape.shown, window)) for window in self._windows]
        sizes = [*[rows] * 5, entries * shape.longest, *[entries] * (2 + len(words))]
        sizes += [rows * count for count in words]
        parts = torch.split(buffer[: sum(sizes)], sizes)
        tokens, positions, written, places, wanted, queries, slots, totals = parts[:8]
        firsts, bits = parts[8 : 8 + len(words)], parts[8 + len(words) :]
        masks = {
            window: StaticMask(
                shown=self._shown(shape.shown, window),
                firsts_E=firsts[kind],
                octets_RB=bits[kind].view(torch.uint8).view(rows, -1),
            )
            for kind, window in enumerate(self._windows)
        }
        return StaticInputs(
            shape=shape,
            tokens_R=tokens,
            positions_R=positions,
            written_R=written,
            places_R=places,
            wanted_R=wanted,
            queries_Q=queries,
            slots_E=slots,
            totals_E=totals,
            masks=masks,
        )

    def fill(self, layout: PassLayout, shape: StaticShape) -> list[Int64s]:
        """The integers of a pass that the shape holds."""
        added, count = layout.added, layout.num_rows
        indices_B = added.slots_B if shape.by_slot else np.arange(layout.num_sessions)
        entries_E = np.full(shape.entries, NOBODY)
        entries_E[indices_B] = np.arange(layout.num_sessions)
        of_rows = np.zeros((5, shape.rows), dtype=np.int64)
        for row, numbers_R in enumerate(
            (
                added.tokens_R,
                layout.positions(),
                layout.written(self._capacity),
                layout.places(indices_B * shape.longest),
            )
        ):
            of_rows[row, :count] = numbers_R
            of_rows[row, count:] = numbers_R[0]
        of_rows[4, : len(layout.wanted_W)] = layout.wanted_W
        of_entries = np.zeros((2 + len(self._windows), shape.entries), dtype=np.int64)
        of_entries[0] = np.arange(shape.entries) if shape.by_slot else 0
        of_entries[0, indices_B] = added.slots_B
        of_entries[1] = 1
        of_entries[1, indices_B] = added.totals_B
        padded_R = np.zeros(shape.rows, np.int64)
        padded_R[:count] = np.arange(count)
        sights: list[Int64s] = []
        for kind, window in enumerate(self._windows):
            shown = self._shown(shape.shown, window)
            firsts_B = first_seen(added, window if shown < shape.shown else None)
            of_entries[2 + kind, indices_B] = firsts_B
            bits = sight_bits(
                added,
                padded_R,
                firsts_Q=firsts_B[added.entries_R[padded_R]],
                words=num_words(shown),
                window=window,
            )
            sights.append(bits.view(np.int64).reshape(-1))
        queries = layout.queries(entries_E, shape.longest)
        return [of_rows.reshape(-1), queries, of_entries.reshape(-1), *sights]

    def _shown(self, shown: int, window: int | None) -> int:
        """Rows of a slot that layers of a window are shown: none sees more than it before the oldest, and scratch rows."""
        return shown if window is None else min(shown, window + self._max_scratch)
