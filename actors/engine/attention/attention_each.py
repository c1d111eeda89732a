"""Attention of each session by itself, on views of its slot: the plain way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from outrider.actors.engine.attention.attention import Manner, attend, attend_plainly
from outrider.actors.engine.attention.pass_layout import PassLayout, Sight, sight
from outrider.actors.engine.kv.storage import Storage


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
        plan: PassLayout,
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

    def __call__(self, layer: int, query: torch.Tensor, manner: Manner) -> torch.Tensor:
        """See `attention.Attend`."""
        window, fused = manner.window, manner.is_fused
        shown = self._shown.get((window, fused))
        if shown is None:
            shown = self._shown[window, fused] = self._show(window, implicit=fused)
        outputs = []
        for (start, end), seen in zip(self._spans, shown, strict=True):
            keys, values = seen.keys[layer], seen.values[layer]
            own = query if self._is_whole else query[:, :, start:end]
            if fused:
                output = attend(own, keys, values, seen.mask, manner, causal=seen.causal)
            else:
                output = attend_plainly(own, keys, values, seen.mask, manner)
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
