"""Attention of many sessions on views: those in neighbouring slots share a kernel call, the others have one each.

For a CPU, where a call for each session and layer takes most of a pass over many. Nothing is copied but queries and results.
Sessions of a stretch are shown equally many rows; what lies behind a session's own is masked, so it must be numbers: the engine
clears what a slot held before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.engine.attention.attention import Manner, attend, attend_plainly
from outrider.actors.engine.attention.attention_each import AttendEach
from outrider.actors.engine.attention.pass_layout import PassLayout, sight
from outrider.actors.engine.attention.stretches import Stretch, stretches_of
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import to_device


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shown:
    """What the sessions of one stretch see in one kind of layer."""

    keys: list[torch.Tensor]
    """Of each layer, shape (slots, key heads, rows, head_dim)."""
    values: list[torch.Tensor]
    """As the keys."""
    mask_B1NS: torch.Tensor
    """Additive; where query heads are grouped, N runs over all heads of a group."""


class _Stretch:
    """One stretch in one pass."""

    def __init__(self, stretch: Stretch, storage: Storage, plan: PassLayout) -> None:
        self._stretch, self._storage, self._plan = stretch, storage, plan
        segments = [plan.segments[index] for index in stretch.members]
        self._segments = segments
        self._places = [segment.slot - stretch.first_slot for segment in segments]
        counts = [len(segment.parents) for segment in segments]
        self._num_rows = most = max(counts)
        # Padded queries repeat a session's first row; slots of nobody repeat any.
        packed_BN = np.full((stretch.num_slots, most), plan.starts[stretch.members[0]])
        packed: list[int] = []
        places: list[int] = []
        for index, place, count in zip(stretch.members, self._places, counts, strict=True):
            start = plan.starts[index]
            packed_BN[place] = start
            packed_BN[place, :count] = np.arange(start, start + count)
            packed.extend(range(start, start + count))
            places.extend(range(place * most, place * most + count))
        self.packed_R = np.array(packed)
        """Packed rows of its sessions."""
        self.places_R = np.array(places)
        """Where in the result these are."""
        self.num_places = packed_BN.size
        self._queries = to_device(packed_BN.reshape(-1), storage.keys[0].device)
        self._shown: dict[tuple[int | None, int], _Shown] = {}

    def __call__(self, layer: int, query: torch.Tensor, manner: Manner) -> torch.Tensor:
        """See `attention.Attend`; the result has the padded rows of all slots instead of M."""
        window, fused = manner.window, manner.is_fused
        num_heads, num_key_heads = query.shape[1], self._storage.keys[layer].shape[2]
        # Heads of a group become rows, as in `AttendTogether`.
        group = num_heads // num_key_heads if fused else 1
        shown = self._shown.get((window, group))
        if shown is None:
            shown = self._shown[window, group] = self._show(window, group)
        num_slots, num_rows = self._stretch.num_slots, self._num_rows
        queries = query[0].transpose(0, 1).index_select(0, self._queries)
        queries = queries.view(num_slots, num_rows, num_heads, -1).transpose(1, 2)
        keys, values = shown.keys[layer], shown.values[layer]
        if fused:
            queries = queries.reshape(num_slots, num_key_heads, group * num_rows, -1)
            output = attend(queries, keys, values, shown.mask_B1NS, manner)
        else:
            output = attend_plainly(queries, keys, values, shown.mask_B1NS, manner)
        output = output.reshape(num_slots, num_heads, num_rows, -1).transpose(1, 2)
        return output.reshape(1, num_slots * num_rows, num_heads, -1)

    def _show(self, window: int | None, group: int) -> _Shown:
        sights = [sight(segment, window=window, implicit=False) for segment in self._segments]
        first = min(seen.first for seen in sights)
        total = max(segment.total for segment in self._segments)
        # Whoever has no row here sees one, so that no row sees nothing.
        mask_BNS = np.full(
            (self._stretch.num_slots, self._num_rows, total - first), -np.inf, dtype=np.float32
        )
        mask_BNS[:, :, 0] = 0.0
        for place, segment, seen in zip(self._places, self._segments, sights, strict=True):
            num_rows, begin, end = len(segment.parents), seen.first - first, segment.total - first
            mask_BNS[place] = -np.inf
            mask_BNS[place, :num_rows, begin:end] = 0.0 if seen.mask_NS is None else seen.mask_NS
            mask_BNS[place, num_rows:] = mask_BNS[place, 0]
        if group > 1 and self._num_rows > 1:
            mask_BNS = np.tile(mask_BNS, (1, group, 1))
        stretch, storage = self._stretch, self._storage
        keys, values = storage.neighbours(
            stretch.first_slot, stretch.num_slots, first, total - first
        )
        mask = to_device(mask_BNS[:, None], keys[0].device, keys[0].dtype)
        return _Shown(keys=keys, values=values, mask_B1NS=mask)


class AttendStretches:
    """A call for each stretch, and one for each other session; see `attention.Attend`."""

    def __init__(
        self, storage: Storage, plan: PassLayout, *, dtype: torch.dtype, device: torch.device
    ):
        """Prepares for one pass."""
        found, alone = stretches_of(plan)
        self._stretches = [_Stretch(stretch, storage, plan) for stretch in found]
        self._each = None
        if alone:
            self._each = AttendEach(storage, plan, dtype=dtype, device=device, members=alone)
        if not found:
            return
        places_M = np.empty(plan.num_rows, dtype=np.int64)
        end = 0
        for stretch in self._stretches:
            places_M[stretch.packed_R] = end + stretch.places_R
            end += stretch.num_places
        for index in alone:
            start, stop = plan.starts[index], plan.starts[index + 1]
            places_M[start:stop] = np.arange(end, end + stop - start)
            end += stop - start
        self._places_M = to_device(places_M, device)

    def __call__(self, layer: int, query: torch.Tensor, manner: Manner) -> torch.Tensor:
        """See `attention.Attend`."""

        if not self._stretches and self._each is not None:
            return self._each(layer, query, manner)
        parts = [stretch(layer, query, manner)[0] for stretch in self._stretches]
        if self._each is not None:
            parts.append(self._each(layer, query, manner)[0])
        output = parts[0] if len(parts) == 1 else torch.cat(parts)
        return output.index_select(0, self._places_M).unsqueeze(0)
