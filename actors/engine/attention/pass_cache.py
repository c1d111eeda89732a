"""What a model takes for its cache in a pass: it writes the new rows into the slots, where attention finds them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import to_device


class Writer(Protocol):
    """A cache that knows which layer wrote last."""

    layer: int

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `PassCache.update`."""
        ...


class PassCache:
    """The cache of one pass."""

    is_compileable = False

    def __init__(self, storage: Storage, plan: PassLayout, *, device: torch.device):
        """Prepares for one pass."""
        self._storage = storage
        self.layer = -1
        """The layer that wrote last, so the one that attends next."""

        segment = plan.segments[0]
        self._own: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None
        self._rows: torch.Tensor | None = None
        if len(plan.segments) == 1:
            first = segment.cached + segment.scratch
            self._own = storage.rows(segment.slot, first, plan.num_rows)
        else:
            rows: list[int] = []
            for each in plan.segments:
                first = each.slot * storage.capacity + each.cached + each.scratch
                rows.extend(range(first, first + len(each.parents)))
            self._rows = to_device(np.array(rows), device)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the rows of one layer. Shapes: (1, key heads, M, head_dim)."""
        self.layer = layer_idx
        storage = self._storage
        if self._own is not None:
            keys, values = self._own
            keys[layer_idx].copy_(key_states)
            values[layer_idx].copy_(value_states)
        elif self._rows is not None:
            storage.flat_keys[layer_idx].index_copy_(0, self._rows, key_states[0].transpose(0, 1))
            storage.flat_values[layer_idx].index_copy_(
                0, self._rows, value_states[0].transpose(0, 1)
            )
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: rows of several sessions have no one length, and positions are given. What computes from it is refused at load
        (`probe_layers.py`)."""
        return 0
