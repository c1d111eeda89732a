"""Attention whose every shape and address is fixed: what a recorded pass writes and reads, and its masks.

Nothing here depends on a value that only the host knows, and the host learns nothing from the device, so the operations of a
pass can be recorded once and replayed for any other pass of the same shape. The same code runs eagerly on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from outrider.actors.engine.attention.attention import Manner, attend, attend_plainly
from outrider.actors.engine.graphs.static_inputs import WORD_BITS, StaticInputs
from outrider.actors.engine.kv.storage import Storage


class StaticCache:
    """What a model takes for its cache: writes the new rows to their places in the slots."""

    is_compileable = False

    def __init__(self, storage: Storage, inputs: StaticInputs) -> None:
        """Takes the rows' places."""
        self._storage = storage
        self._written_R = inputs.written_R
        self.layer = -1
        """The layer that wrote last, so the one that attends next."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the rows of one layer. Shapes: (1, key heads, R, head_dim)."""
        self.layer = layer_idx
        keys, values = self._storage.flat_keys[layer_idx], self._storage.flat_values[layer_idx]
        keys.index_copy_(0, self._written_R, key_states[0].transpose(0, 1))
        values.index_copy_(0, self._written_R, value_states[0].transpose(0, 1))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """See `PassCache.get_seq_length`."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sight:
    """What one kind of layer sees."""

    rows_ES: torch.Tensor | None
    """Rows of the storage to gather; None: the first `shown` rows of the first `entries` slots, in place."""

    mask_E1NS: torch.Tensor
    """Additive; where query heads are grouped, N runs over all heads of a group."""


class AttendStatic:
    """See `attention.Attend`."""

    def __init__(
        self,
        storage: Storage,
        inputs: StaticInputs,
        *,
        max_scratch: int,
        dtype: torch.dtype,
    ) -> None:
        """Prepares for passes of one shape.

        Args:
            storage: Keys and values.
            inputs: What the passes depend on.
            max_scratch: Scratch rows of a slot; bounds what a windowed layer is shown.
            dtype: Type of the mask.
        """
        self._storage = storage
        self._inputs = inputs
        self._max_scratch = max_scratch
        self._dtype = dtype
        self._sights: dict[tuple[int | None, int], _Sight] = {}

    def __call__(self, layer: int, query: torch.Tensor, manner: Manner) -> torch.Tensor:
        """See `attention.Attend`."""
        inputs, shape = self._inputs, self._inputs.shape
        window, fused = manner.window, manner.is_fused
        # Query heads of one key head become rows: kernels with a mask take no grouped heads.
        group = query.shape[1] // self._storage.keys[layer].shape[2] if fused else 1
        sight = self._sights.get((window, group))
        if sight is None:
            sight = self._sights[window, group] = self._see(window, group)
        keys, values = self._rows(layer, sight)
        # One session's rows are its queries, in order; padding rows repeat its first.
        is_one = shape.entries == 1 and shape.rows == shape.longest
        queries = query if is_one else query[0][:, inputs.queries_EN].transpose(0, 1)
        if fused:
            queries = queries.reshape(shape.entries, keys.shape[1], group * shape.longest, -1)
            output = attend(queries, keys, values, sight.mask_E1NS, manner)
        else:
            mask = sight.mask_E1NS
            output = attend_plainly(queries, keys, values, mask, manner)
        output = output.reshape(shape.entries, query.shape[1], shape.longest, -1).transpose(1, 2)
        if is_one:
            return output
        return output.flatten(0, 1).index_select(0, inputs.places_R).unsqueeze(0)

    def _rows(self, layer: int, sight: _Sight) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the entries. Shape (E, key heads, S, head_dim)."""
        storage, shape = self._storage, self._inputs.shape
        if sight.rows_ES is None:
            keys = storage.keys[layer][: shape.entries, : shape.shown]
            values = storage.values[layer][: shape.entries, : shape.shown]
        else:
            keys = storage.flat_keys[layer][sight.rows_ES]
            values = storage.flat_values[layer][sight.rows_ES]
        return keys.transpose(1, 2), values.transpose(1, 2)

    def _see(self, window: int | None, group: int) -> _Sight:
        inputs, shape, shown = self._inputs, self._inputs.shape, self._inputs.shape.shown
        device = inputs.cached_E.device
        first_E = torch.zeros_like(inputs.cached_E)
        if window is not None and window + self._max_scratch < shown:
            # No row sees more than a window before the oldest, and scratch rows.
            shown = window + self._max_scratch
            first_E = (inputs.oldest_E - window + 1).clamp(min=0).minimum(inputs.cached_E)
        rows_ES = None
        columns_ES = first_E[:, None] + torch.arange(shown, device=device)
        if not shape.by_slot or shown < shape.shown:
            # Behind a slot's last row the last is repeated: what another session left there is not touched.
            within_ES = columns_ES.minimum(inputs.totals_E[:, None] - 1)
            rows_ES = inputs.slots_E[:, None] * self._storage.capacity + within_ES
        sees_ENS = see(inputs, columns_ES, window)
        mask_E1NS = torch.zeros(sees_ENS.shape, dtype=self._dtype, device=device)
        mask_E1NS = mask_E1NS.masked_fill(~sees_ENS, -torch.inf)[:, None]
        return _Sight(rows_ES=rows_ES, mask_E1NS=mask_E1NS.repeat(1, 1, group, 1))


def see(inputs: StaticInputs, columns_ES: torch.Tensor, window: int | None) -> torch.Tensor:
    """Which rows of its slot each query sees: as `plan.sight`, from what the device has.

    Args:
        inputs: What the pass depends on.
        columns_ES: Rows of each entry's slot.
        window: Width of the sliding window in positions; None for no window.

    Returns:
        Boolean. Shape (E, N, S).
    """
    device = columns_ES.device
    lineages_ENW = inputs.lineages_RW[inputs.queries_EN]
    bits_ENC = ((lineages_ENW[..., None] >> torch.arange(WORD_BITS, device=device)) & 1).flatten(2)
    num_bits = bits_ENC.shape[-1]
    # Scratch row of each column; below 0 where the column is a cached row.
    scratch_E1S = (columns_ES - inputs.cached_E[:, None])[:, None]
    is_cached_E1S = scratch_E1S < 0
    shape = (*inputs.queries_EN.shape, columns_ES.shape[1])
    place_ENS = scratch_E1S.clamp(0, num_bits - 1).expand(shape)
    is_ancestor_ENS = (bits_ENC.gather(2, place_ENS) > 0) & (scratch_E1S < num_bits)
    sees_ENS = is_cached_E1S | is_ancestor_ENS
    if window is None:
        return sees_ENS
    # The ancestor at depth d is the d-th set bit of the lineage, for parents come before children.
    depths_ENC = bits_ENC.cumsum(2) - 1
    scratch_positions_ENS = depths_ENC.gather(2, place_ENS) + inputs.cached_E[:, None, None]
    positions_ENS = torch.where(is_cached_E1S, columns_ES[:, None], scratch_positions_ENS)
    oldest_EN = inputs.positions_R[inputs.queries_EN] - window + 1
    return sees_ENS & (positions_ENS >= oldest_EN[..., None])
