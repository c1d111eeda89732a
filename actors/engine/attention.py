"""Attention of packed rows over slots, as transformers' attention interface wants it.

A model calls the cache and then the attention function in each layer. The cache (`PassCache.update`) writes the new rows into
the slots; the attention function ignores the keys and values that it is handed and reads the slots. What the running pass is,
it learns from a variable of the thread, since transformers has no other way to a registered function; engines of one process,
and threads, do not meet.

Four ways of the same signature: `AttendEach` runs the kernel once for each session on views of the slots, without copying a
committed row; `AttendStretches` once for all that lie in neighbouring slots, on views too; `AttendTogether` gathers the slots and
runs it once, for devices where a launch costs more than a copy; `AttendStatic` does that with fixed shapes and addresses, so
that a pass can be recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from outrider.actors.engine.plan import Plan, Sight, sight
from outrider.actors.engine.staging import to_device
from outrider.actors.engine.storage import Storage

ATTENTION_NAME = "outrider_tree"
"""The name that the function is registered under in transformers."""


class UnsupportedModel(ValueError):
    """The model asks for something that tree attention over slots does not do: serve another model."""


class Attend(Protocol):
    """One pass's way to attend."""

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attends in one layer, whose new rows are in the slots already.

        Shapes: query (1, heads, M, head_dim); the result (1, M, heads, value head_dim).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shown:
    """What one session's rows see, on the device."""

    keys: list[torch.Tensor]
    """Of each layer, shape (1, key heads, rows, head_dim)."""
    values: list[torch.Tensor]
    """As the keys."""
    mask: torch.Tensor | None
    causal: bool


class AttendEach:
    """One kernel call for each session, on views."""

    def __init__(
        self,
        storage: Storage,
        plan: Plan,
        *,
        dtype: torch.dtype,
        device: torch.device,
        members: Sequence[int] | None = None,
    ):
        """Prepares for one pass.

        Args:
            storage: Keys and values.
            plan: The pass.
            dtype: Of masks.
            device: Where masks are.
            members: Segments that attend here, ascending, the result holding their rows only; None: all.
        """
        self._storage = storage
        self._dtype = dtype
        self._device = device
        everyone = range(len(plan.segments)) if members is None else members
        self._segments = [plan.segments[index] for index in everyone]
        self._spans = [(plan.starts[index], plan.starts[index + 1]) for index in everyone]
        self._is_whole = len(plan.segments) == 1
        self._shown: dict[tuple[int | None, bool], list[_Shown]] = {}

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """See `Attend`."""
        fused = softcap is None and sinks is None
        shown = self._shown.get((window, fused))
        if shown is None:
            shown = self._shown[window, fused] = self._show(window, implicit=fused)
        outputs = []
        for (start, end), seen in zip(self._spans, shown, strict=True):
            keys, values = seen.keys[layer], seen.values[layer]
            own = query if self._is_whole else query[:, :, start:end]
            if fused:
                output = attend(own, keys, values, seen.mask, scaling, seen.causal)
            else:
                output = attend_plainly(own, keys, values, seen.mask, scaling, softcap, sinks)
            outputs.append(output.transpose(1, 2))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    def _show(self, window: int | None, *, implicit: bool) -> list[_Shown]:
        shown = []
        for segment in self._segments:
            seen = sight(segment, window=window, implicit=implicit)
            keys, values = self._storage.rows(segment.slot, seen.first, segment.total - seen.first)
            shown.append(
                _Shown(
                    keys=keys,
                    values=values,
                    mask=self._to_device(seen),
                    causal=seen.causal,
                )
            )
        return shown

    def _to_device(self, seen: Sight) -> torch.Tensor | None:
        if seen.mask_NS is None:
            return None
        return torch.from_numpy(seen.mask_NS).to(device=self._device, dtype=self._dtype)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    causal: bool,
) -> torch.Tensor:
    """Attends with grouped heads in one kernel.

    Shapes: query (B, heads, N, head_dim), keys and values (B, key heads, S, head_dim), mask broadcastable to
    (B, heads, N, S); the result (B, heads, N, value head_dim).
    """
    return scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=mask,
        is_causal=causal,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )


def attend_plainly(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attends step by step, for what the kernel does not do.

    Args:
        query: As in `attend`, like the next three.
        keys: See `query`.
        values: See `query`.
        mask: Additive; None if each row sees all.
        scaling: Factor of the scores; None for one over the root of head_dim.
        softcap: Greatest score in absolute value, reached smoothly.
        sinks: Score, for each head, of a key that has no value. Shape (heads,).
    """
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    batch, heads, num_rows, dim = query.shape
    # Query heads of one key head become rows, so that keys are not repeated.
    grouped = query.reshape(batch, keys.shape[1], -1, dim)
    scores = torch.matmul(grouped, keys.transpose(-1, -2)) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.view(batch, heads, num_rows, -1)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        column = sinks.view(1, heads, 1, 1).expand(batch, heads, num_rows, 1)
        scores = torch.cat([scores, column.to(scores.dtype)], dim=-1)
    probs = torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
    probs = probs[..., : keys.shape[2]].reshape(batch, keys.shape[1], -1, keys.shape[2])
    return torch.matmul(probs, values).reshape(batch, heads, num_rows, values.shape[-1])


class PassCache:
    """What a model takes for its cache in one pass: writes the new rows into the slots."""

    is_compileable = False

    def __init__(self, storage: Storage, plan: Plan, *, device: torch.device):
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
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object
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
        """Zero: positions are given explicitly."""
        return 0


class Writer(Protocol):
    """A cache that knows which layer wrote last."""

    layer: int

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `PassCache.update`."""
        ...


class _Running(threading.local):
    """The pass that the thread runs."""

    cache: Writer | None = None
    attend: Attend | None = None


RUNNING = _Running()
"""Set by an engine around the model's forward."""


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls in each layer. Shapes: as `Attend`."""
    cache, attend_pass = RUNNING.cache, RUNNING.attend
    if cache is None or attend_pass is None:
        raise RuntimeError(
            f"the model's attention is {ATTENTION_NAME!r}, which runs through an engine only; "
            "call the engine's forward instead of the model"
        )
    output = attend_pass(
        cache.layer, query, scaling=scaling, window=sliding_window, softcap=softcap, sinks=s_aux
    )
    return output, None
