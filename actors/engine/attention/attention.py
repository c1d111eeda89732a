"""The kernel call of attention, and what a layer may ask of it beyond who sees whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention


class UnsupportedModel(ValueError):
    """The model asks for something that tree attention over slots does not do: serve another model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionParams:
    """How one layer attends, beyond who sees whom: as the model's modules say."""

    scaling: float | None
    """Factor of the scores; None for one over the root of head_dim."""

    window: int | None = None
    """Latest rows that a row sees, itself included; None: all."""

    softcap: float | None = None
    """Greatest score in absolute value, reached smoothly."""

    sinks: torch.Tensor | None = None
    """Score, for each head, of a key that has no value. Shape (heads,)."""

    @property
    def is_fused(self) -> bool:
        """Whether the kernel does it."""
        return self.softcap is None and self.sinks is None


class Attend(Protocol):
    """One pass's attention."""

    def __call__(self, layer: int, query: torch.Tensor, params: AttentionParams) -> torch.Tensor:
        """Attends in one layer, whose new rows are in the slots already.

        Shapes: query (1, heads, M, head_dim); the result (1, M, heads, value head_dim).
        """
        ...


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    params: AttentionParams,
    *,
    is_causal: bool = False,
    is_folded: bool = False,
) -> torch.Tensor:
    """Attends with grouped heads in one kernel.

    Shapes: query (B, heads, N, head_dim), keys and values (B, key heads, S, head_dim), mask broadcastable to
    (B, heads, N, S); the result (B, heads, N, value head_dim).

    Args:
        query: Like the next three, see above.
        keys: See above.
        values: See above.
        mask: Additive; None if each row sees all.
        params: Scaling; no soft cap and no sinks.
        is_causal: Without a mask: row i sees rows 0 to i.
        is_folded: The query heads of one key head become rows of one product. The mask then has N rows for each of them, one head
            after another.
    """
    batch, heads, num_rows, dim = query.shape
    num_key_heads = keys.shape[1]
    if is_folded:
        query = query.reshape(batch, num_key_heads, -1, dim)
    output = scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=mask,
        is_causal=is_causal,
        scale=params.scaling,
        enable_gqa=query.shape[1] != num_key_heads,
    )
    return output.reshape(batch, heads, num_rows, -1) if is_folded else output


def attend_plainly(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    params: AttentionParams,
) -> torch.Tensor:
    """Attends step by step, for what the kernel does not do.

    Args:
        query: As in `attend`, like the next three.
        keys: See `query`.
        values: See `query`.
        mask: Additive; None if each row sees all.
        params: Scaling, softcap and sinks.
    """
    scaling, softcap, sinks = params.scaling, params.softcap, params.sinks
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    batch, heads, num_rows, dim = query.shape
    # Query heads of one key head become rows, so that keys are not repeated.
    folded = query.reshape(batch, keys.shape[1], -1, dim)
    scores = torch.matmul(folded, keys.transpose(-1, -2)) * scaling
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
