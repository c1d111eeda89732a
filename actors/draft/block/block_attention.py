"""One block of the draft model: attention over the target's fused states and the slots themselves, then a gated product.

Source: DFlash (arXiv 2602.06036), blocks as in Qwen3: each head's queries and keys are normed. Context rows pass no norm of the block: the
same fused state goes into the keys and values of all blocks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.actors.draft.block.block_config import BlockConfig


def rotations(config: BlockConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions [..]; shape [.., 1, head_dim / 2] each. In float64, so that no position is too great."""
    half = config.head_dim // 2
    steps = torch.arange(half, device=positions.device, dtype=torch.float64) / half
    angles = positions[..., None].double() * config.rope_theta**-steps
    return angles.cos().float().unsqueeze(-2), angles.sin().float().unsqueeze(-2)


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turns heads [.., H, head_dim] by their positions (Su et al. 2021, arXiv 2104.09864)."""
    cosines, sines = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


class BlockAttention(nn.Module):
    """Slots attend to the context and to each other, without a causal mask."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self._config = config
        width, dim = config.width, config.head_dim
        self.q_proj = nn.Linear(width, config.num_heads * dim, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_heads * dim, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_heads * dim, bias=False)
        self.o_proj = nn.Linear(config.num_heads * dim, width, bias=False)
        self.q_norm = nn.RMSNorm(dim, config.eps)
        self.k_norm = nn.RMSNorm(dim, config.eps)

    def keys_values(self, rows: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Keys and values of rows [.., D]; shape [.., 2, key heads, head_dim]."""
        shape = (*rows.shape[:-1], self._config.num_key_heads, self._config.head_dim)
        keys = rotate(self.k_norm(self.k_proj(rows).view(shape)), rotation)
        return torch.stack((keys, self.v_proj(rows).view(shape)), dim=-3)

    def forward(
        self, slots: Tensor, rotation: tuple[Tensor, Tensor], context: Tensor, seen: Tensor
    ) -> Tensor:
        """What each slot gathers.

        Args:
            slots: Normed states [N, B, D].
            rotation: Of their positions.
            context: Keys and values [N, C, 2, key heads, head_dim].
            seen: Which slot sees which row of the context and of its own block, bool [N, 1, 1, C + B].
        """
        config = self._config
        num, block, _ = slots.shape
        queries = self.q_proj(slots).view(num, block, config.num_heads, config.head_dim)
        queries = rotate(self.q_norm(queries), rotation)
        every = torch.cat((context, self.keys_values(slots, rotation)), dim=1)
        keys, values = every.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(
            queries.transpose(1, 2), keys, values, attn_mask=seen, enable_gqa=True
        )
        gathered: Tensor = self.o_proj(attended.transpose(1, 2).reshape(num, block, -1))
        return gathered


class GatedProduct(nn.Module):
    """The other half of a block (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.inner, bias=False)
        self.up_proj = nn.Linear(config.width, config.inner, bias=False)
        self.down_proj = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Of rows [.., D]."""
        product: Tensor = self.down_proj(F.silu(self.gate_proj(rows)) * self.up_proj(rows))
        return product


class BlockLayer(nn.Module):
    """Norm, attention, sum, norm, gated product, sum."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.width, config.eps)
        self.self_attn = BlockAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.width, config.eps)
        self.mlp = GatedProduct(config)

    def forward(
        self, slots: Tensor, rotation: tuple[Tensor, Tensor], context: Tensor, seen: Tensor
    ) -> Tensor:
        """As `BlockAttention`, of states that are not normed."""
        slots = slots + self.self_attn(self.input_layernorm(slots), rotation, context, seen)
        after: Tensor = slots + self.mlp(self.post_attention_layernorm(slots))
        return after
