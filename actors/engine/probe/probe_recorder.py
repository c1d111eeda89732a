"""Cache and attention function that record what a model's layers hand to them."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch

from outrider.actors.engine.attention.attention import UnsupportedModel

PLAIN_NAME = "outrider_probe"
"""The name that the recording function is registered under in transformers, for passes without masks."""

MASKED_NAME = "outrider_probe_masked"
"""The same, for passes with masks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One layer's call of attention."""

    handed: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    """Queries, and the keys and values that were cached. Shape (1, heads, rows, head_dim) each."""

    mask: torch.Tensor | None
    options: dict[str, object]


class LayerRecorder:
    """A cache that forgets, but remembers calls."""

    is_compileable = False

    def __init__(self, *, length: int, shown: int) -> None:
        """A cache that says it is `length` long, and shows so many rows more than are written, all alike."""
        self._length, self._shown = length, shown
        self._written: tuple[torch.Tensor, torch.Tensor] | None = None
        self._layer = -1
        self.written_layers: set[int] = set()
        self.calls: dict[int, Call] = {}

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._layer, self._written = layer_idx, (key_states, value_states)
        self.written_layers.add(layer_idx)
        return self._behind(key_states), self._behind(value_states)

    def _behind(self, rows: torch.Tensor) -> torch.Tensor:
        """As a cache of the shown length would give them back, without room for them."""
        if not self._shown:
            return rows
        batch, heads, num_rows, dim = rows.shape
        return rows.new_full((), 0.5).expand(batch, heads, self._shown + num_rows, dim)

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return self._length

    def get_query_offset(self, layer_idx: int | None = 0) -> int:
        return self._length

    def get_mask_sizes(
        self, query_length: int | torch.Tensor, layer_idx: int | None = 0
    ) -> tuple[int, int]:
        # Before transformers 5.11 or so, the positions of the rows.
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self._length + count, 0

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        options: dict[str, object],
    ) -> torch.Tensor:
        if self._written is None or self._layer in self.calls:
            raise UnsupportedModel(
                f"attention ran twice after layer {self._layer} wrote its keys: layers that share keys "
                "and values are not supported"
            )
        for kind, given, kept in zip(("keys", "values"), (key, value), self._written, strict=True):
            if not self._shown and not torch.equal(given, kept):
                raise UnsupportedModel(
                    f"layer {self._layer} attends to other keys and values than it caches: its {kind} are changed after the "
                    f"cache has taken them ({_told(kept)} cached, {_told(given)} attended to), which is not supported"
                )
        self.calls[self._layer] = Call(handed=(query, *self._written), mask=mask, options=options)
        # What comes out matters only as far as it is the same in both passes.
        keys, values = self._written
        output = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, is_causal=True, enable_gqa=query.shape[1] != keys.shape[1]
        )
        return output.transpose(1, 2)


def _told(rows: torch.Tensor) -> str:
    return f"{rows.shape[1]} heads of {rows.shape[-1]} numbers"


class _Recording(threading.local):
    """The pass that the thread runs."""

    cache: LayerRecorder | None = None


RECORDING = _Recording()
"""Set around the model's forward."""


def recorded_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    if RECORDING.cache is None:
        raise RuntimeError("the model's attention records; probing it has failed before")
    return RECORDING.cache.attend(query, key, value, attention_mask, options), None
