"""A masked-diffusion draft model that is causal between blocks: it reads tokens, keeps what it read, and fills a block of masks in one pass.

Source: Christopher et al. 2024, arXiv 2408.05636 (SpecDiff): a masked diffusion model as drafter, all places of a block at once. Block-causal
attention after Arriola et al. 2025, arXiv 2503.09573; logits are shifted by one, as in the drafter of arXiv 2511.00606 (SpecDiff-2). With E and W the
target's embedding and head, frozen and not stored, and n the length of the text:

    z[i] = A E x[i]            i < n: a row of the text; sees rows i-window+1 .. i of the text, so it is computed once and kept
    z[i] = A E y[i]  or  mask  n <= i < n + L - 1: a row of the block; sees the text and every row of the block
    z    = z + attention(z);  z = z + mlp(z)                            each layer, the same weights for both kinds of rows
    logits of the token at i + 1 = W B norm(z[i])                       i = n - 1 .. n + L - 2: L tokens
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.actors.draft.block.block_attention import BlockLayer, rotations
from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.draft.on_states.net_tables import check_table


class DiffusionNet(nn.Module):
    """See the module."""

    _embedding_VD: Tensor
    _head_VD: Tensor

    def __init__(self, config: DiffusionConfig, *, embedding_VD: Tensor, head_VD: Tensor) -> None:
        """Freshly initialised.

        Args:
            config: The shape.
            embedding_VD: The target's embedding. Kept as it is, not among the parameters.
            head_VD: The target's output layer, likewise.

        Raises:
            ValueError: A table is of another shape.
        """
        super().__init__()
        self.config = config
        shape = config.vocab_size, config.table_width
        check_table("embedding", embedding_VD, shape)
        check_table("head", head_VD, shape)
        self.register_buffer("_embedding_VD", embedding_VD, persistent=False)
        self.register_buffer("_head_VD", head_VD, persistent=False)
        self.in_proj = nn.Linear(config.table_width, config.width, bias=False)
        self.mask_embed = nn.Parameter(torch.zeros(config.width))
        self.layers = nn.ModuleList(BlockLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.width, config.eps)
        self.out_proj = nn.Linear(config.width, config.table_width, bias=False)

    @property
    def tables(self) -> dict[str, Tensor]:
        """The borrowed tables, as `__init__` takes them."""
        return {
            "embedding_VD": self._embedding_VD,
            "head_VD": self._head_VD,
        }

    def states(
        self,
        tokens_NR: Tensor,
        is_known_NR: Tensor,
        positions_NR: Tensor,
        context: Tensor,
        seen: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """One pass over N sequences of R rows, which see nothing of each other.

        Args:
            tokens_NR: The token of each row that holds one; any id elsewhere.
            is_known_NR: Rows that hold their token; the others hold the mask.
            positions_NR: Absolute positions.
            context: Keys and values of earlier rows (layers, N, C, 2, key heads, head_dim), in any order.
            seen: Which row sees which of the context and of the own rows, bool [N, 1, R, C + R]. Each sees one at least.

        Returns:
            Normed states [N, R, D], and the rows' own keys and values (layers, N, R, 2, key heads, head_dim).
        """
        embedded = F.embedding(tokens_NR, self._embedding_VD)
        slots = torch.where(is_known_NR[..., None], self.in_proj(embedded), self.mask_embed)
        rotation = rotations(self.config, positions_NR)
        kept = []
        for layer, rows in zip(self.layers, context, strict=True):
            slots, own = layer(slots, rotation, rows, seen)
            kept.append(own)
        states: Tensor = self.norm(slots)
        return states, torch.stack(kept)

    def unary(self, states: Tensor) -> Tensor:
        """Logits [.., V] of states [.., D]: of the token behind each row's."""
        return F.linear(self.out_proj(states), self._head_VD)
