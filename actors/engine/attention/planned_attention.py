"""The attention and the cache of a pass on a CPU: on views of the slots, so that no committed row is copied.

A call of the kernel for each session and layer would take most of a pass over many: those of neighbouring slots share one
(`slot_runs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from outrider.actors.engine.attention.attention import Attend
from outrider.actors.engine.attention.attention_mask import additive, first_seen, mask_bits
from outrider.actors.engine.attention.pass_attention import (
    AttentionCall,
    KeysAndMask,
    PassAttention,
)
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.attention.slot_runs import SlotRun, slot_runs_of
from outrider.actors.engine.kv.slot import SlotGrowth
from outrider.actors.engine.kv.storage import Storage


def planned_cache(layout: PassLayout, storage: Storage) -> PassCache:
    """The cache of a pass."""
    if len(layout.segments) == 1:
        (own,) = layout.segments
        first = own.cached + own.scratch
        return PassCache(storage, None, view=storage.views(own.slot, 1, first, layout.num_rows))
    return PassCache(storage, _tensor(layout.written(storage.capacity)))


def planned_attention(layout: PassLayout, storage: Storage) -> Attend:
    """The attention of a pass."""
    if len(layout.segments) == 1:
        return _of_one(layout, 0, storage)
    runs, alone = slot_runs_of(layout)
    if not runs:
        return PassAttention([_of_one(layout, index, storage) for index in alone])
    calls: list[AttentionCall] = []
    places = [0] * layout.num_rows
    end = 0
    for run in runs:
        call = _of_many(layout, run, storage)
        layout.put_places(run.entries, call.num_queries, places, end)
        end += call.num_entries * call.num_queries
        calls.append(call)
    for index in alone:
        call = _of_one(layout, index, storage)
        layout.put_places([index], call.num_queries, places, end)
        end += call.num_queries
        calls.append(call)
    if places == list(range(end)):
        return PassAttention(calls)
    return PassAttention(calls, _tensor(places))


def _of_one(layout: PassLayout, index: int, storage: Storage) -> AttentionCall:
    """The call of a session by itself."""
    growth = layout.segments[index]
    return AttentionCall(
        storage,
        queries=None
        if len(layout.segments) == 1
        else slice(layout.starts[index], layout.starts[index + 1]),
        num_entries=1,
        num_queries=len(growth.parents),
        see=_Views(storage, growth.slot, [growth], len(growth.parents)),
    )


def _of_many(layout: PassLayout, run: SlotRun, storage: Storage) -> AttentionCall:
    """The call of sessions that share it."""
    every = layout.segments
    entries = [None if index is None else every[index] for index in run.entries]
    num_queries = max([len(growth.parents) for growth in entries if growth is not None])
    rows = layout.queries(run.entries, num_queries)
    first, end = rows[0], rows[0] + len(rows)
    return AttentionCall(
        storage,
        queries=slice(first, end) if rows == list(range(first, end)) else _tensor(rows),
        num_entries=len(entries),
        num_queries=num_queries,
        see=_Views(storage, run.first_slot, entries, num_queries),
    )


class _Views:
    """What the rows of a call see, as views and a mask from the host. See `pass_attention.See`."""

    def __init__(
        self,
        storage: Storage,
        first_slot: int,
        entries: Sequence[SlotGrowth | None],
        num_queries: int,
    ) -> None:
        self._storage, self._first_slot = storage, first_slot
        self._entries, self._num_queries = entries, num_queries

    def __call__(self, window: int | None, may_be_causal: bool) -> KeysAndMask:
        storage, entries, num_queries = self._storage, self._entries, self._num_queries
        growths = [growth for growth in entries if growth is not None]
        total, first = max([growth.total for growth in growths]), 0
        if window is not None:
            if window > max([growth.cached + max(growth.depths) for growth in growths]):
                # A window that no row outgrows is no window.
                window = None
            else:
                first = min([first_seen(growth, window) for growth in growths])
        shown = total - first
        view = storage.views(self._first_slot, len(entries), first, shown)
        if len(entries) == 1:
            if window is None and _is_chain(growths[0]):
                if num_queries == 1:
                    return KeysAndMask(view=view)
                if may_be_causal and num_queries == total:
                    return KeysAndMask(view=view, is_causal=True)
            bits = mask_bits(growths[0], first=first, window=window)
        else:
            bits = self._padded_bits(first, window)
        mask = torch.from_numpy(additive(bits, shown).reshape(len(entries), 1, num_queries, shown))
        return KeysAndMask(view=view, mask_E1NS=mask.to(storage.dtype))

    def _padded_bits(self, first: int, window: int | None) -> list[int]:
        """Bits of all queries; in a slot of nobody a row sees one, for what saw nothing would be no number."""
        bits: list[int] = []
        for growth in self._entries:
            own = [1] if growth is None else mask_bits(growth, first=first, window=window)
            bits += own
            bits += [own[0]] * (self._num_queries - len(own))
        return bits


def _is_chain(growth: SlotGrowth) -> bool:
    """Whether the scratch rows of the slot come one after another."""
    scratch = growth.total - growth.cached
    return growth.lineages[-1] == (1 << scratch) - 1


def _tensor(numbers: list[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, dtype=np.int64))
