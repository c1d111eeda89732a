"""A draft model that proposes a block of tokens in one pass, from the target's hidden states, with a small serial head.

Source: DFlash (arXiv 2602.06036) for the block; DSpark (DeepSeek-AI and Peking University 2026) for the Markov and the confidence head. With f[i] the
target's states at position i, n(.) a division by the root mean square, E and W the target's embedding and head, frozen and not stored:

    c[i] = hidden_norm(fc([n(f1[i]); n(f2[i]); ..]))                        context, one row a position
    z    = [E x[a]; E x[a+1]; ..; E x[a+r]; mask; ..; mask]                 B slots at positions a, a+1, ..; r tokens revealed
    z    = z + attention(keys and values of c[a-window .. a-1] and of z);  z = z + mlp(z)          each block
    U_k  = W h_k,  h = norm(z)                                              slot k: the token at position a+k+1, k >= r
    p_k(. | u) = softmax(U_k + W2 W1[u])                                    u the token at position a+k
    conf_k(u)  = sigmoid(w . [h_k; W1[u]] + b)                              chance that the token drawn from p_k stays

Keys and values of a context row depend on that row and its position only: rows come in any order, each once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.actors.draft.block.block_attention import BlockLayer, rotations
from outrider.actors.draft.block.block_config import BlockConfig


class MarkovHead(nn.Module):
    """What the token before adds to the logits of a slot, whichever the slot: rank r."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab_size, config.rank)
        self.markov_w2 = nn.Linear(config.rank, config.vocab_size, bias=False)
        # A product that begins at nothing and still has gradients.
        nn.init.normal_(self.markov_w1.weight, std=config.rank**-0.5)
        nn.init.zeros_(self.markov_w2.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Of tokens [..]: biases [.., V]."""
        biases: Tensor = self.markov_w2(self.markov_w1(tokens))
        return biases


class ConfidenceHead(nn.Module):
    """How likely a slot's token is to stay, given that those before it do."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(config.width + config.rank, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, states: Tensor, tokens: Tensor | None) -> Tensor:
        """Logits [..] of states [.., D], and of what the Markov head knows of the tokens before [.., r]."""
        rows = states if tokens is None else torch.cat((states, tokens), dim=-1)
        logits: Tensor = self.proj(rows).squeeze(-1)
        return logits


class BlockNet(nn.Module):
    """See the module."""

    def __init__(self, config: BlockConfig, *, embedding_VD: Tensor, head_VD: Tensor) -> None:
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
        for name, table in (("embedding", embedding_VD), ("head", head_VD)):
            if tuple(table.shape) != (config.vocab_size, config.width):
                raise ValueError(
                    f"the target's {name} is {tuple(table.shape)}; the shape asks for "
                    f"{config.vocab_size, config.width}"
                )
        self.register_buffer("_embedding_VD", embedding_VD, persistent=False)
        self.register_buffer("_head_VD", head_VD, persistent=False)
        self.fc = nn.Linear(len(config.taps) * config.width, config.width, bias=False)
        self.hidden_norm = nn.RMSNorm(config.width, config.eps)
        self.mask_embed = nn.Parameter(embedding_VD.float().mean(dim=0))
        self.layers = nn.ModuleList(BlockLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.width, config.eps)
        self.markov_head = MarkovHead(config) if config.rank else None
        self.confidence_head = ConfidenceHead(config) if config.has_confidence else None

    def keys_values(self, features_TLD: Tensor, positions_T: Tensor) -> Tensor:
        """What a block attends to at positions of the context.

        Args:
            features_TLD: The target's states, layers in the order of `BlockConfig.taps`.
            positions_T: Absolute positions.

        Returns:
            Keys and values of each layer, shape (layers, T, 2, key heads, head_dim).
        """
        config = self.config
        states = F.rms_norm(features_TLD, (config.width,), eps=config.eps)
        rows = self.hidden_norm(self.fc(states.flatten(-2)))
        rotation = rotations(config, positions_T)
        return torch.stack(
            [self._layer(n).self_attn.keys_values(rows, rotation) for n in range(config.num_layers)]
        )

    def states(
        self,
        tokens_NB: Tensor,
        is_told_NB: Tensor,
        anchors_N: Tensor,
        context: Tensor,
        seen_NC: Tensor,
    ) -> Tensor:
        """One pass over N blocks that see nothing of each other.

        Args:
            tokens_NB: The token of each slot that is told one; any id elsewhere.
            is_told_NB: Slots that hold their token; the others hold the mask.
            anchors_N: Position of each block's first slot.
            context: Keys and values (layers, N, C, 2, key heads, head_dim), rows in any order.
            seen_NC: Rows of it that each block sees.

        Returns:
            h [N, B, D].
        """
        config = self.config
        embedded = F.embedding(tokens_NB, self._table("_embedding_VD"))
        slots = torch.where(is_told_NB[..., None], embedded, self.mask_embed)
        places = torch.arange(config.block, device=anchors_N.device)
        rotation = rotations(config, anchors_N[:, None] + places)
        own = seen_NC.new_ones(len(seen_NC), config.block)
        seen = torch.cat((seen_NC, own), dim=1)[:, None, None]
        for number in range(config.num_layers):
            slots = self._layer(number)(slots, rotation, context[number], seen)
        states: Tensor = self.norm(slots)
        return states

    def unary(self, states: Tensor) -> Tensor:
        """U of states h [.., D]; shape [.., V]."""
        return F.linear(states, self._table("_head_VD"))

    def confidence(self, states: Tensor, tokens: Tensor) -> Tensor | None:
        """Logits of conf for states [.., D] and the tokens before [..]; None: there is no such head."""
        if self.confidence_head is None:
            return None
        known = None if self.markov_head is None else self.markov_head.markov_w1(tokens)
        logits: Tensor = self.confidence_head(states, known)
        return logits

    def _layer(self, number: int) -> BlockLayer:
        layer = self.layers[number]
        assert isinstance(layer, BlockLayer), "they are"
        return layer

    def _table(self, name: str) -> Tensor:
        table = getattr(self, name)
        assert isinstance(table, Tensor), "it was given"
        return table
