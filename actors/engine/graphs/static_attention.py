"""The attention and the cache of a pass whose every shape and address is fixed.

Nothing here depends on a value that only the host knows, and the host learns nothing from the device, so the operations of a
pass can be recorded once and replayed for any other pass of the same shape. The same code runs eagerly on a CPU.
"""

from __future__ import annotations

import torch

from outrider.actors.engine.attention.pass_attention import (
    AttentionCall,
    KeysAndMask,
    PassAttention,
)
from outrider.actors.engine.graphs.static_inputs import StaticInputs
from outrider.actors.engine.kv.storage import Storage


def static_attention(storage: Storage, inputs: StaticInputs) -> PassAttention:
    """The attention of the passes of a shape."""
    shape = inputs.shape
    # The rows of one session are its queries, in order; padding rows repeat its first.
    is_one = shape.entries == 1 and shape.rows == shape.longest
    call = AttentionCall(
        storage,
        queries=None if is_one else inputs.queries_Q,
        num_entries=shape.entries,
        num_queries=shape.longest,
        see=_Recorded(storage, inputs),
    )
    return PassAttention([call], None if is_one else inputs.places_R)


class _Recorded:
    """What the rows of a call see, from what the device has. See `pass_attention.See`."""

    def __init__(self, storage: Storage, inputs: StaticInputs) -> None:
        self._storage, self._inputs = storage, inputs

    def __call__(self, window: int | None, may_be_causal: bool) -> KeysAndMask:
        storage, inputs, shape = self._storage, self._inputs, self._inputs.shape
        static = inputs.masks[window]
        view = rows_ES = None
        if shape.by_slot and static.shown == shape.shown:
            view = storage.views(0, shape.entries, 0, static.shown)
        else:
            columns_S = torch.arange(static.shown, device=storage.device)
            # Behind a slot's last row the last is repeated: what another session left there is not touched.
            within_ES = (static.firsts_E[:, None] + columns_S).minimum(inputs.totals_E[:, None] - 1)
            rows_ES = inputs.slots_E[:, None] * storage.capacity + within_ES
        places_8 = torch.arange(8, dtype=torch.uint8, device=storage.device)
        sees_RS = (static.octets_RB[..., None] >> places_8 & 1).flatten(1)[:, : static.shown]
        sees_QS = sees_RS[inputs.queries_Q]
        mask_QS = torch.zeros(sees_QS.shape, dtype=storage.dtype, device=storage.device)
        mask_QS = mask_QS.masked_fill(sees_QS == 0, -torch.inf)
        mask = mask_QS.view(shape.entries, 1, shape.longest, static.shown)
        return KeysAndMask(view=view, rows_ES=rows_ES, mask_E1NS=mask)
