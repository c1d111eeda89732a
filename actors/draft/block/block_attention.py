"""One block of the draft model: attention over the target's fused states and the slots themselves, then a gated product.

Source: DFlash (arXiv 2602.06036), blocks as in Qwen3: each head's queries and keys are normed. Context rows pass no norm of the block: the
same fused state goes into the keys and values of all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.actors.draft.on_states.net_shape import LayerShape
from outrider.actors.draft.on_states.rotary import frequencies

FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
"""Of the gated product, by the names of `layer_fields.ACTIVATIONS`."""


def rotations(config: LayerShape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions [..]; shape [.., 1, rotary_dim / 2] each. In float64, so that no position is too great."""
    rotated = config.rotary_dim or config.head_dim
    steps, gain = frequencies(rotated, config.rope_theta, config.rope_scaling)
    angles = positions[..., None].double() * steps.to(positions.device)
    cosines, sines = angles.cos() * gain, angles.sin() * gain
    return cosines.float().unsqueeze(-2), sines.float().unsqueeze(-2)


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turns the first numbers of heads [.., H, head_dim] by their positions (Su et al. 2021, arXiv 2104.09864)."""
    cosines, sines = rotation
    half = cosines.shape[-1]
    first, second, rest = heads.tensor_split((half, 2 * half), dim=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines, rest)
    return torch.cat(turned, dim=-1)


class BlockAttention(nn.Module):
    """Slots attend to the context and to each other."""

    def __init__(
        self, config: LayerShape, *, num_inputs: int = 1, has_head_norms: bool = True
    ) -> None:
        """
        Args:
            config: The shape.
            num_inputs: Width of the rows that are read, in widths of the model.
            has_head_norms: Whether each head's queries and keys are normed.
        """
        super().__init__()
        self._config = config
        read, dim, bias = num_inputs * config.width, config.head_dim, config.has_biases
        self.q_proj = nn.Linear(read, config.num_heads * dim, bias=bias)
        self.k_proj = nn.Linear(read, config.num_key_heads * dim, bias=bias)
        self.v_proj = nn.Linear(read, config.num_key_heads * dim, bias=bias)
        self.o_proj = nn.Linear(config.num_heads * dim, config.width, bias=bias)
        self.q_norm = nn.RMSNorm(dim, config.eps) if has_head_norms else nn.Identity()
        self.k_norm = nn.RMSNorm(dim, config.eps) if has_head_norms else nn.Identity()

    def keys_values(self, rows: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Keys and values of rows [.., D]; shape [.., 2, key heads, head_dim]."""
        shape = (*rows.shape[:-1], self._config.num_key_heads, self._config.head_dim)
        keys = rotate(self.k_norm(self.k_proj(rows).view(shape)), rotation)
        return torch.stack((keys, self.v_proj(rows).view(shape)), dim=-3)

    def forward(
        self, slots: Tensor, rotation: tuple[Tensor, Tensor], context: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What each slot gathers, and the slots' own keys and values [N, B, 2, key heads, head_dim].

        Args:
            slots: Normed states [N, B, D].
            rotation: Of their positions.
            context: Keys and values [N, C, 2, key heads, head_dim].
            seen: Which slot sees which row of the context and of its own block, bool [N, 1, 1 or B, C + B].
        """
        own = self.keys_values(slots, rotation)
        every = torch.cat((context, own), dim=1)
        return self.gathered(slots, rotation, every, seen), own

    def gathered(
        self, slots: Tensor, rotation: tuple[Tensor, Tensor], every: Tensor, seen: Tensor
    ) -> Tensor:
        """What slots [N, B, D] gather from `every` key and value, their own included, where `seen` [N, 1, 1 or B, keys] says so."""
        config = self._config
        num, block, _ = slots.shape
        queries = self.q_proj(slots).view(num, block, config.num_heads, config.head_dim)
        queries = rotate(self.q_norm(queries), rotation)
        keys, values = every.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(
            queries.transpose(1, 2), keys, values, attn_mask=seen, enable_gqa=True
        )
        gathered: Tensor = self.o_proj(attended.transpose(1, 2).reshape(num, block, -1))
        return gathered


class GatedProduct(nn.Module):
    """The other half of a block (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, config: LayerShape) -> None:
        super().__init__()
        self._function = FUNCTIONS[config.activation]
        self.gate_proj = nn.Linear(config.width, config.inner, bias=False)
        self.up_proj = nn.Linear(config.width, config.inner, bias=False)
        self.down_proj = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Of rows [.., D]."""
        product: Tensor = self.down_proj(self._function(self.gate_proj(rows)) * self.up_proj(rows))
        return product


class BlockLayer(nn.Module):
    """Norm, attention, sum, norm, gated product, sum."""

    def __init__(self, config: LayerShape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.width, config.eps)
        self.self_attn = BlockAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.width, config.eps)
        self.mlp = GatedProduct(config)

    def forward(
        self, slots: Tensor, rotation: tuple[Tensor, Tensor], context: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `BlockAttention`, of states that are not normed."""
        gathered, own = self.self_attn(self.input_layernorm(slots), rotation, context, seen)
        slots = slots + gathered
        after: Tensor = slots + self.mlp(self.post_attention_layernorm(slots))
        return after, own
