"""Attention of all sessions in one kernel call, for devices where launches cost more than copies.

The slots' rows are gathered into one padded tensor, and so are the queries. For passes that are too large to be padded to a
fixed shape and recorded (`static_attention.py`), or rare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.engine.attention.attention import Manner, attend, attend_plainly
from outrider.actors.engine.attention.pass_layout import PassLayout, sight
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import to_device


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Gathered:
    """Where one kind of layer finds its rows."""

    rows_BS: torch.Tensor
    """int64; flat row of each shown row; padding repeats the first shown one."""

    mask_B1NS: torch.Tensor
    """Additive; where query heads are grouped, N runs over all heads of a group."""


class AttendTogether:
    """One kernel call for all sessions; see `attention.Attend`."""

    def __init__(
        self, storage: Storage, plan: PassLayout, *, dtype: torch.dtype, device: torch.device
    ):
        """Prepares for one pass."""
        self._storage = storage
        self._plan = plan
        self._dtype = dtype
        self._device = device
        self._gathered: dict[tuple[int | None, int], _Gathered] = {}
        counts = [len(segment.parents) for segment in plan.segments]
        most = max(counts)
        # Where the packed rows lie in the padded queries, and the reverse; padding repeats a segment's first row.
        padded = np.concatenate([np.arange(count) + i * most for i, count in enumerate(counts)])
        offsets = np.arange(most)[None, :]
        within = np.where(offsets < np.array(counts)[:, None], offsets, 0)
        packed_BN = np.array(plan.starts[:-1])[:, None] + within
        self._padded_M = to_device(padded, device)
        self._packed_BN = to_device(packed_BN, device)

    def __call__(self, layer: int, query: torch.Tensor, manner: Manner) -> torch.Tensor:
        """See `attention.Attend`."""
        num_sessions, most = self._packed_BN.shape
        window, fused = manner.window, manner.is_fused
        # Query heads of one key head become rows: kernels with a mask take no grouped heads. The plain path groups by
        # itself.
        group = query.shape[1] // self._storage.keys[layer].shape[2] if fused else 1
        gathered = self._gathered.get((window, group))
        if gathered is None:
            gathered = self._gathered[window, group] = self._gather(window, group)
        # (heads, M, d) -> (heads, B, N, d) -> (B, heads, N, d)
        queries = query[0][:, self._packed_BN].transpose(0, 1)
        keys = self._storage.flat_keys[layer][gathered.rows_BS].transpose(1, 2)
        values = self._storage.flat_values[layer][gathered.rows_BS].transpose(1, 2)
        if fused:
            queries = queries.reshape(num_sessions, keys.shape[1], group * most, -1)
            output = attend(queries, keys, values, gathered.mask_B1NS, manner)
        else:
            mask = gathered.mask_B1NS
            output = attend_plainly(queries, keys, values, mask, manner)
        output = output.reshape(num_sessions, query.shape[1], most, -1).transpose(1, 2)
        return output.flatten(0, 1).index_select(0, self._padded_M).unsqueeze(0)

    def _gather(self, window: int | None, group: int) -> _Gathered:
        plan, capacity = self._plan, self._storage.capacity
        sights = [sight(segment, window=window, implicit=False) for segment in plan.segments]
        shown = [
            segment.total - seen.first for segment, seen in zip(plan.segments, sights, strict=True)
        ]
        num_sessions, most = self._packed_BN.shape
        rows_BS = np.empty((num_sessions, max(shown)), dtype=np.int64)
        mask_BNS = np.full((num_sessions, most, max(shown)), -np.inf, dtype=np.float32)
        for i, (segment, seen) in enumerate(zip(plan.segments, sights, strict=True)):
            first, num_rows = segment.slot * capacity + seen.first, len(segment.parents)
            rows_BS[i, : shown[i]] = np.arange(first, first + shown[i])
            rows_BS[i, shown[i] :] = first
            mask_BNS[i, :num_rows, : shown[i]] = 0.0 if seen.mask_NS is None else seen.mask_NS
            # Padding queries repeat the first row, mask included, so that no row sees nothing.
            mask_BNS[i, num_rows:] = mask_BNS[i, 0]
        mask_BNS = np.tile(mask_BNS, (1, group, 1))
        mask = to_device(mask_BNS[:, None], self._device, self._dtype)
        return _Gathered(rows_BS=to_device(rows_BS, self._device), mask_B1NS=mask)
