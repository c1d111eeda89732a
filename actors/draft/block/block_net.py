"""A draft model that proposes a block of tokens in one pass, from the target's hidden states, with a small serial head.

Source: DFlash (arXiv 2602.06036) for the block; DSpark (DeepSeek-AI and Peking University 2026) for the Markov and the confidence head. With f[i] the
target's states at position i, n(.) a division by the root mean square, E and W the target's embedding and head, frozen and not stored:

    c[i] = hidden_norm(fc([n(f1[i]); n(f2[i]); ..]))                        context, one row a position
    z    = [E x[a]; E x[a+1]; ..; E x[a+r]; mask; ..; mask]                 B slots at positions a, a+1, ..; r tokens revealed
    z    = z + attention(keys and values of c[a-window .. a-1] and of z);  z = z + mlp(z)          each block
    U_k  = W h_k,  h = norm(z)                                              slot k: the token at position a+k+1, k >= r (see `first_slot`)
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
from outrider.actors.draft.on_states.net_tables import check_table, spread


class MarkovHead(nn.Module):
    """What the token before adds to the logits of a slot: rank r. Of a vanilla head it is the same in all slots."""

    def __init__(self, config: BlockConfig, num_logits: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab_size, config.rank)
        self.markov_w2 = nn.Linear(config.rank, num_logits, bias=False)
        is_gated = config.markov == "gated"
        size = config.width + config.rank
        self.gate_proj = nn.Linear(size, config.rank) if is_gated else None
        # A product that begins at nothing and still has gradients.
        nn.init.normal_(self.markov_w1.weight, std=config.rank**-0.5)
        nn.init.zeros_(self.markov_w2.weight)

    def forward(self, tokens: Tensor, states: Tensor | None = None) -> Tensor:
        """Biases, one for each row of the head, of slots behind tokens [..]. A gated head also reads the slots' states [.., D]."""
        known = self.markov_w1(tokens)
        if self.gate_proj is not None:
            assert states is not None, "a gated head reads them"
            known = known * self.gate_proj(torch.cat((states, known), dim=-1)).sigmoid()
        biases: Tensor = self.markov_w2(known)
        return biases


class ConfidenceHead(nn.Module):
    """How likely a slot's token is to stay, given that those before it do."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        read = config.rank if config.confidence_reads_token else 0
        self.proj = nn.Linear(config.width + read, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, states: Tensor, tokens: Tensor | None) -> Tensor:
        """Logits [..] of states [.., D], and of what the Markov head knows of the tokens before [.., r]."""
        rows = states if tokens is None else torch.cat((states, tokens), dim=-1)
        logits: Tensor = self.proj(rows).squeeze(-1)
        return logits


class BlockNet(nn.Module):
    """See the module."""

    _embedding_VD: Tensor
    _head_VD: Tensor
    _draft_ids: Tensor | None

    def __init__(
        self,
        config: BlockConfig,
        *,
        embedding_VD: Tensor,
        head_VD: Tensor,
        draft_ids: Tensor | None = None,
    ) -> None:
        """Freshly initialised.

        Args:
            config: The shape.
            embedding_VD: The target's embedding. Kept as it is, not among the parameters.
            head_VD: The target's output layer, or one with fewer rows, likewise.
            draft_ids: The target's token of each row of a head with fewer; None: all.

        Raises:
            ValueError: A table is of another shape.
        """
        super().__init__()
        self.config = config
        num_logits = config.vocab_size if draft_ids is None else len(draft_ids)
        check_table("embedding", embedding_VD, (config.vocab_size, config.width))
        check_table("head", head_VD, (num_logits, config.width))
        self.register_buffer("_embedding_VD", embedding_VD, persistent=False)
        self.register_buffer("_head_VD", head_VD, persistent=False)
        self.register_buffer("_draft_ids", draft_ids, persistent=False)
        self.fc = nn.Linear(len(config.taps) * config.state_width, config.width, bias=False)
        self.hidden_norm = nn.RMSNorm(config.width, config.eps)
        has_mask = config.mask_token_id is None
        self.mask_embed = nn.Parameter(embedding_VD.float().mean(dim=0)) if has_mask else None
        self.layers = nn.ModuleList(BlockLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.width, config.eps)
        self.markov_head = MarkovHead(config, num_logits) if config.rank else None
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
        states = features_TLD
        if config.normed_taps:
            states = F.rms_norm(states, (config.state_width,), eps=config.eps)
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
        table_VD = self._embedding_VD
        mask = table_VD[config.mask_token_id] if self.mask_embed is None else self.mask_embed
        slots = torch.where(is_told_NB[..., None], F.embedding(tokens_NB, table_VD), mask)
        slots = slots * config.embedding_scale
        places = torch.arange(config.block, device=anchors_N.device)
        rotation = rotations(config, anchors_N[:, None] + places)
        own = seen_NC.new_ones(config.block, config.block)
        everything = _seen(seen_NC, own[:1])
        earlier = _seen(seen_NC, own.tril()) if config.is_causal else everything
        for number in range(config.num_layers):
            seen = everything if number in config.both_ways else earlier
            slots, _ = self._layer(number)(slots, rotation, context[number], seen)
        states: Tensor = self.norm(slots)
        return states

    def unary(self, states: Tensor) -> Tensor:
        """U of states h [.., D], one for each row of the head."""
        config = self.config
        logits = F.linear(states, self._head_VD) * config.logit_scale
        return config.soft_cap * (logits / config.soft_cap).tanh() if config.soft_cap else logits

    def likeliest(self, states: Tensor) -> Tensor:
        """The likeliest tokens [..] of slots h [.., D] by U alone, whatever stands before them."""
        rows, ids = self.unary(states).argmax(dim=-1), self._draft_ids
        return rows if ids is None else ids[rows]

    def logits(self, unary: Tensor, states: Tensor, tokens: Tensor) -> Tensor:
        """What slots say after tokens.

        Args:
            unary: U of the slots.
            states: h of the slots [.., D].
            tokens: The token before each [..].

        Returns:
            [.., V]; minus infinity for tokens that no row of the head stands for.
        """
        values = unary
        if self.markov_head is not None:
            values = values + self.markov_head(tokens, states)
        ids = self._draft_ids
        return values if ids is None else spread(values, ids, self.config.vocab_size)

    def confidence(self, states: Tensor, tokens: Tensor) -> Tensor | None:
        """Logits of conf for states [.., D] and the tokens before [..]; None: there is no such head."""
        if self.confidence_head is None:
            return None
        known = None
        if self.markov_head is not None and self.config.confidence_reads_token:
            known = self.markov_head.markov_w1(tokens)
        logits: Tensor = self.confidence_head(states, known)
        return logits

    @property
    def num_logits(self) -> int:
        """Rows of the head."""
        return len(self._head_VD)

    def _layer(self, number: int) -> BlockLayer:
        layer = self.layers[number]
        assert isinstance(layer, BlockLayer), "they are"
        return layer


def _seen(seen_NC: Tensor, own: Tensor) -> Tensor:
    """Which rows of the context, and of its own block [1 or B, B], each slot sees: bool [N, 1, 1 or B, C + B]."""
    context = seen_NC[:, None].expand(-1, len(own), -1)
    return torch.cat((context, own.expand(len(seen_NC), -1, -1)), dim=2)[:, None]
