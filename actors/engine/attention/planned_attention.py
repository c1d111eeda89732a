"""The attention and the cache of a pass on a CPU: on views of the slots, so that no committed row is copied.

A call of the kernel for each session and layer would take most of a pass over many: those of neighbouring slots share one
(`slot_runs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from outrider.actors.engine.attention.attention import Attend
from outrider.actors.engine.attention.attention_mask import (
    additive,
    first_seen,
    mask_bits,
    num_words,
)
from outrider.actors.engine.attention.pass_attention import (
    AttentionCall,
    KeysAndMask,
    PassAttention,
)
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.attention.pass_layout import NOBODY, PassLayout
from outrider.actors.engine.attention.slot_runs import SlotRun, slot_runs_of
from outrider.actors.engine.kv.added_rows import Words
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.protocol import Int64s


def planned_cache(layout: PassLayout, storage: Storage) -> PassCache:
    """The cache of a pass."""
    if layout.num_sessions == 1:
        first = layout.totals[0] - layout.num_rows
        view = storage.views(layout.slots[0], 1, first, layout.num_rows)
        return PassCache(storage, None, view=view)
    return PassCache(storage, torch.from_numpy(layout.written(storage.capacity)))


def planned_attention(layout: PassLayout, storage: Storage) -> Attend:
    """The attention of a pass."""
    if layout.num_sessions == 1:
        return _of_one(layout, 0, storage)
    runs, alone = slot_runs_of(layout)
    if not runs:
        return PassAttention([_of_one(layout, entry, storage) for entry in alone])
    calls: list[AttentionCall] = []
    firsts_B = np.zeros(layout.num_sessions, np.int64)
    end = 0
    for run in runs:
        call = _of_many(layout, run, storage)
        for place, entry in enumerate(run.entries):
            if entry != NOBODY:
                firsts_B[entry] = end + place * call.num_queries
        end += call.num_entries * call.num_queries
        calls.append(call)
    for entry in alone:
        call = _of_one(layout, entry, storage)
        firsts_B[entry] = end
        end += call.num_queries
        calls.append(call)
    places_R = layout.places(firsts_B)
    if len(places_R) == end and np.array_equal(places_R, np.arange(end)):
        return PassAttention(calls)
    return PassAttention(calls, torch.from_numpy(places_R))


def _of_one(layout: PassLayout, entry: int, storage: Storage) -> AttentionCall:
    """The call of a session by itself."""
    start, end = layout.starts[entry : entry + 2]
    return AttentionCall(
        storage,
        queries=None if layout.num_sessions == 1 else slice(start, end),
        num_entries=1,
        num_queries=end - start,
        see=_Views(layout, storage, layout.slots[entry], [entry], end - start),
    )


def _of_many(layout: PassLayout, run: SlotRun, storage: Storage) -> AttentionCall:
    """The call of sessions that share it."""
    starts = layout.starts
    num_queries = max(starts[entry + 1] - starts[entry] for entry in run.members)
    rows = layout.queries(np.array(run.entries), num_queries)
    first, end = int(rows[0]), int(rows[0]) + len(rows)
    is_range = np.array_equal(rows, np.arange(first, end))
    return AttentionCall(
        storage,
        queries=slice(first, end) if is_range else torch.from_numpy(rows),
        num_entries=len(run.entries),
        num_queries=num_queries,
        see=_Views(layout, storage, run.first_slot, run.entries, num_queries),
    )


class _Views:
    """What the rows of a call see, as views and a mask from the host. See `pass_attention.See`."""

    def __init__(
        self,
        layout: PassLayout,
        storage: Storage,
        first_slot: int,
        entries: Sequence[int],
        num_queries: int,
    ) -> None:
        self._layout, self._storage, self._first_slot = layout, storage, first_slot
        self._entries, self._num_queries = entries, num_queries
        self._members = [entry for entry in entries if entry != NOBODY]

    def __call__(self, window: int | None, may_be_causal: bool) -> KeysAndMask:
        storage, layout, num_queries = self._storage, self._layout, self._num_queries
        members, num_entries = self._members, len(self._entries)
        total, first = max(layout.totals[entry] for entry in members), 0
        if window is not None:
            if window > self._deepest():
                # A window that no row outgrows is no window.
                window = None
            else:
                first = int(first_seen(layout.added, window)[members].min())
        shown = total - first
        view = storage.views(self._first_slot, num_entries, first, shown)
        if num_entries == 1 and window is None and self._is_chain():
            if num_queries == 1:
                return KeysAndMask(view=view)
            if may_be_causal and num_queries == total:
                return KeysAndMask(view=view, is_causal=True)
        bits = self._bits(first, shown, window)
        mask = torch.from_numpy(additive(bits, shown).reshape(num_entries, 1, num_queries, shown))
        return KeysAndMask(view=view, mask_E1NS=mask.to(storage.dtype))

    def _deepest(self) -> int:
        """Greatest position of a row."""
        deepest_B = np.maximum.reduceat(self._layout.added.depths_R, self._layout.added.starts[:-1])
        return int((self._layout.added.cached_B + deepest_B)[self._members].max())

    def _is_chain(self) -> bool:
        """Whether the scratch rows of the slot come one after another."""
        added, (entry,) = self._layout.added, self._members
        last = self._layout.starts[entry + 1] - 1
        return bool(added.depths_R[last] == added.columns_R[last])

    def _bits(self, first: int, shown: int, window: int | None) -> Words:
        """Bits of all queries; in a slot of nobody a row sees one, for what saw nothing would be no number."""
        layout, entries_Q = self._layout, np.array(self._entries)
        if len(entries_Q) == 1:
            (entry,) = self._entries
            rows_Q: Int64s = np.arange(layout.starts[entry], layout.starts[entry + 1])
        else:
            rows_Q = layout.queries(entries_Q, self._num_queries)
        bits_QS = mask_bits(
            layout.added,
            rows_Q,
            firsts_Q=first,
            words=num_words(shown),
            window=window,
        )
        if len(self._members) < len(entries_Q):
            nobody = (entries_Q == NOBODY).repeat(self._num_queries)
            bits_QS[nobody] = 0
            bits_QS[nobody, 0] = 1
        return bits_QS
