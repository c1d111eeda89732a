"""The attention of a pass, on a CPU and on a GPU, run once or recorded.

A pass is one or more *calls* of the kernel in each layer. A call pads the queries of its sessions to one length, takes the keys
and values of their slots, as a view where the slots are neighbours and by gathering where they are not, and masks what a row
does not see. Which sessions share a call is decided by `slot_runs.py`, or by the shape that a recorded pass is padded to.

Sessions of a call are shown equally many rows. What lies behind a session's own is masked, so it must be numbers: the engine
clears what a slot held before. Masks and places are made once a pass for each kind of layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from outrider.actors.engine.attention.attention import AttentionParams, attend, attend_plainly
from outrider.actors.engine.kv.storage import Planes, Storage


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeysAndMask:
    """What the rows of a call see in one kind of layer: E slots, N queries each, S rows shown."""

    view: Planes | None = None
    """Keys and values of each layer; None: they are gathered."""

    rows_ES: torch.Tensor | None = None
    """Rows of the storage to gather."""

    mask_E1NS: torch.Tensor | None = None
    """Additive; None: each sees all, or see `is_causal`."""

    is_causal: bool = False
    """Without a mask: row i sees rows 0 to i."""


See = Callable[[int | None, bool], KeysAndMask]
"""Gives what layers of a window see; whether the kernel may be told that a mask is causal."""


class AttentionCall:
    """One call of the kernel in each layer."""

    def __init__(
        self,
        storage: Storage,
        *,
        queries: slice | torch.Tensor | None,
        num_entries: int,
        num_queries: int,
        see: See,
    ) -> None:
        """Takes what a call depends on.

        Args:
            storage: Keys and values.
            queries: Packed row of each query, one entry after another: a range, or shape (E * N,); None: one
                entry has all.
            num_entries: E.
            num_queries: N.
            see: What is seen; asked once for each kind of layer.
        """
        self._storage = storage
        self._queries = queries
        self.num_entries, self.num_queries = num_entries, num_queries
        self._see = see
        # Query heads of one key head become rows: kernels of GPUs take no grouped heads with a mask, and on a CPU one product of
        # many rows takes less than many of few. One session's rows are enough by themselves, and need no copy of their results.
        self._folds = num_entries > 1 or num_queries == 1 or storage.device.type != "cpu"
        self._seen: dict[tuple[int | None, int, bool], KeysAndMask] = {}

    def __call__(self, layer: int, query: torch.Tensor, params: AttentionParams) -> torch.Tensor:
        """See `Attend`; the result has the E * N queries instead of M rows."""
        storage, is_fused = self._storage, params.is_fused
        folded = 1
        if self._folds and is_fused:
            folded = query.shape[1] // storage.keys[layer].shape[2]
        kind = (params.window, folded, is_fused)
        seen = self._seen.get(kind)
        if seen is None:
            seen = self._seen[kind] = self._look(*kind)
        if seen.view is not None:
            keys, values = seen.view.keys[layer], seen.view.values[layer]
        else:
            keys = storage.flat_keys[layer][seen.rows_ES].transpose(1, 2)
            values = storage.flat_values[layer][seen.rows_ES].transpose(1, 2)
        if self._queries is not None:
            query = self._padded(query)
        if is_fused:
            output = attend(
                query,
                keys,
                values,
                seen.mask_E1NS,
                params,
                is_causal=seen.is_causal,
                is_folded=folded > 1 and not seen.is_causal,
            )
        else:
            output = attend_plainly(query, keys, values, seen.mask_E1NS, params)
        output = output.transpose(1, 2)
        if self.num_entries == 1:
            return output
        return output.reshape(1, -1, *output.shape[2:])

    def _padded(self, query: torch.Tensor) -> torch.Tensor:
        """Queries of each entry: from (1, heads, M, head_dim) to (E, heads, N, head_dim)."""
        queries, num_entries, num_queries = self._queries, self.num_entries, self.num_queries
        if isinstance(queries, slice):
            if num_entries == 1:
                return query[:, :, queries]
            rows = query[0].transpose(0, 1)[queries]
        else:
            assert queries is not None
            rows = query[0].transpose(0, 1).index_select(0, queries)
        return rows.view(num_entries, num_queries, *rows.shape[1:]).transpose(1, 2)

    def _look(self, window: int | None, folded: int, is_fused: bool) -> KeysAndMask:
        seen = self._see(window, is_fused)
        mask = seen.mask_E1NS
        if mask is None or folded == 1 or mask.shape[2] == 1:
            return seen
        num_entries, _, num_queries, shown = mask.shape
        mask = mask.expand(num_entries, folded, num_queries, shown)
        mask = mask.reshape(num_entries, 1, folded * num_queries, shown)
        return KeysAndMask(view=seen.view, rows_ES=seen.rows_ES, mask_E1NS=mask)


class PassAttention:
    """See `Attend`."""

    def __init__(
        self, calls: Sequence[AttentionCall], places_M: torch.Tensor | None = None
    ) -> None:
        """Takes the calls of a pass.

        Args:
            calls: All calls.
            places_M: Where each packed row is among the queries of all calls; None: they are the packed rows, in order.
        """
        self._calls = calls
        self._places_M = places_M

    def __call__(self, layer: int, query: torch.Tensor, params: AttentionParams) -> torch.Tensor:
        """See `Attend`."""
        parts = [call(layer, query, params) for call in self._calls]
        output = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self._places_M is None:
            return output
        return output[0].index_select(0, self._places_M).unsqueeze(0)
