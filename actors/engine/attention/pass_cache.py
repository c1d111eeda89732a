"""What a model takes for its cache in a pass: it writes the new rows into the slots, where attention finds them."""

from __future__ import annotations

import torch

from outrider.actors.engine.kv.storage import Planes, Storage


class PassCache:
    """The cache of one pass."""

    is_compileable = False

    def __init__(
        self, storage: Storage, rows: torch.Tensor | None, *, view: Planes | None = None
    ) -> None:
        """Prepares for one pass.

        Args:
            storage: Keys and values.
            rows: Row of the storage, slots one after another, that each packed row goes to. Shape (M,).
            view: The same as a view, where they are neighbours: faster.
        """
        self._storage = storage
        self._rows = rows
        self._view = view
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
        """Writes the rows of one layer. Shapes: (1, key heads, M, head_dim)."""
        self.layer = layer_idx
        if self._view is not None:
            self._view.keys[layer_idx].copy_(key_states)
            self._view.values[layer_idx].copy_(value_states)
        else:
            assert self._rows is not None
            keys = self._storage.flat_keys[layer_idx]
            values = self._storage.flat_values[layer_idx]
            keys.index_copy_(0, self._rows, key_states[0].transpose(0, 1))
            values.index_copy_(0, self._rows, value_states[0].transpose(0, 1))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: rows of several sessions have no one length, and positions are given. What computes from it is refused at load
        (`probe_layers.py`)."""
        return 0
