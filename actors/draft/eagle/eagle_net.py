"""The draft net of EAGLE-3: one decoder layer over fused states of the target and tokens, which goes on on its own output.

Source: Li et al. 2025, arXiv 2503.01840. With f1[i], f2[i], .. the target's states of the tapped layers at position i, E and W an embedding and a head:

    s[i]   = fc([f1[i]; f2[i]; ..])                             a state of the target, D numbers
    u[p]   = [input_layernorm(E x[p]); hidden_norm(s[p-1])]     the row of the token at position p, 2 D numbers
    a[p]   = s[p-1] + attention(queries of u[p], keys and values of u[..p])
    s'[p]  = a[p] + mlp(post_attention_layernorm(a[p]))
    law of x[p+1] = softmax(W norm(s'[p]))                      over the ids that the net proposes

A module of multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437) is the same but for its input (`projects`):

    z[p]   = input_proj u[p]                                    D numbers, and s[i] = f1[i]
    a[p]   = z[p] + attention(..attention_layernorm(z)..)       queries, keys and values of D numbers

Where the target has told no state of position p, s'[p] takes the place of s[p]: drafting goes on without it. Keys and values of a row with a state
of the target depend on that state, its token and its position alone, so rows come in any order.

**Names and shapes** are those of the authors' checkpoints, so that a file of theirs maps on by a table of names; D width, d target's width, n taps,
H heads, K key heads of h numbers, M inner, v ids proposed, V the target's:

    fc.weight [D, n d]                                          midlayer.self_attn.q_proj.weight [H h, 2 D]
    midlayer.input_layernorm.weight [D]                         midlayer.self_attn.{k,v}_proj.weight [K h, 2 D]
    midlayer.hidden_norm.weight [D]                             midlayer.self_attn.o_proj.weight [D, H h]
    midlayer.post_attention_layernorm.weight [D]                midlayer.mlp.{gate,up}_proj.weight [M, D]
    norm.weight [D]                                             midlayer.mlp.down_proj.weight [D, M]

and, where the configuration says so: `lm_head.weight` [v, D] (`owns_head`), `embed_tokens.weight` [V, D] (`owns_embedding`), `d2t` [v] int64
(`num_drafted`: id i of the net is id i + d2t[i] of the target; theirs has `t2d` too, which follows from it), `midlayer.self_attn.{q,k}_norm.weight` [h]
(`has_head_norms`), `input_norm.weight` [n d] (`norm_before_fc`), `fc_norm.{0,1,..}.weight` [d] (`norm_each_tap`), `fc.bias` [D] (`fc_bias`), no `fc` (`fuses: false`), and of ours `reuse_in.weight` [r, 3 D],
`reuse_out.weight` [D, r] (`reuse_rank`), `midlayer.input_proj.weight` [D, 2 D] and `midlayer.attention_layernorm.weight` [D] (`projects`, and no `fc`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.actors.draft.block.block_attention import BlockAttention, GatedProduct, rotations
from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.on_states.net_tables import check_table, spread


class EagleLayer(nn.Module):
    """A decoder layer that reads a token beside a state."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self._config = config
        self.input_layernorm = nn.RMSNorm(config.width, config.eps)
        self.hidden_norm = nn.RMSNorm(config.width, config.eps)
        self.input_proj, self.attention_layernorm = None, None
        if config.projects:
            self.input_proj = nn.Linear(2 * config.width, config.width, bias=False)
            self.attention_layernorm = nn.RMSNorm(config.width, config.eps)
        self.self_attn = BlockAttention(
            config,
            num_inputs=1 if config.projects else 2,
            has_head_norms=config.has_head_norms,
        )
        self.post_attention_layernorm = nn.RMSNorm(config.width, config.eps)
        self.mlp = GatedProduct(config)

    def inputs(self, states: Tensor, embedded: Tensor) -> Tensor:
        """u of states and embedded tokens [.., D] each; shape [.., 2 D], or z [.., D]."""
        both = torch.cat((self.input_layernorm(embedded), self.hidden_norm(states)), dim=-1)
        return both if self.input_proj is None else self.input_proj(both)

    def attended(self, inputs: Tensor) -> Tensor:
        """What attention reads of u or z."""
        return inputs if self.attention_layernorm is None else self.attention_layernorm(inputs)

    def keys_values(self, inputs: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Keys and values of rows u or z [.., D or 2 D]; shape [.., 2, key heads, head_dim]."""
        return self.self_attn.keys_values(self.attended(inputs), rotation)

    def forward(
        self,
        states: Tensor,
        inputs: Tensor,
        rotation: tuple[Tensor, Tensor],
        every: Tensor,
        seen: Tensor,
    ) -> Tensor:
        """s' of rows.

        Args:
            states: s [N, B, D].
            inputs: u [N, B, 2 D], or z [N, B, D].
            rotation: Of the positions of the rows' tokens.
            every: Keys and values [N, A, 2, key heads, head_dim], those of the rows themselves among them.
            seen: Which row sees which of them, bool [N, 1, B, A].
        """
        around = states
        if self._config.projects:
            around = inputs
        elif self._config.norm_before_residual:
            around = inputs[..., self._config.width :]
        around = around + self.self_attn.gathered(self.attended(inputs), rotation, every, seen)
        after: Tensor = around + self.mlp(self.post_attention_layernorm(around))
        return after


class EagleNet(nn.Module):
    """See the module."""

    d2t: Tensor | None

    def __init__(
        self,
        config: EagleConfig,
        *,
        embedding_VD: Tensor | None = None,
        head_VD: Tensor | None = None,
        drafted_ids: Tensor | None = None,
    ) -> None:
        """Freshly initialised.

        Args:
            config: The shape.
            embedding_VD: The target's embedding, unless the net has its own. Kept as it is, not among the parameters.
            head_VD: The target's output layer, likewise, all rows.
            drafted_ids: The target's ids that are proposed, ascending; None: the first ones, to be overwritten by a file's.

        Raises:
            ValueError: A table is missing, or of another shape.
        """
        super().__init__()
        self.config = config
        width, num = config.width, config.num_drafted or config.vocab_size
        for name, table, owns in (
            ("embedding", embedding_VD, config.owns_embedding),
            ("head", head_VD, config.owns_head),
        ):
            if not owns:
                check_table(name, table, (config.vocab_size, width))
        read = len(config.taps) * config.target_width
        self.input_norm = nn.RMSNorm(read, config.eps) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(
            nn.RMSNorm(config.target_width, config.eps)
            for _ in range(len(config.taps) if config.norm_each_tap else 0)
        )
        self.fc = nn.Linear(read, width, bias=config.fc_bias) if config.has_fc else None
        self.midlayer = EagleLayer(config)
        self.norm = nn.RMSNorm(width, config.eps)
        self.embed_tokens = (
            nn.Embedding(config.vocab_size, width) if config.owns_embedding else None
        )
        self.lm_head = nn.Linear(width, num, bias=False) if config.owns_head else None
        self.reuse_in, self.reuse_out = None, None
        if config.reuse_rank:
            self.reuse_in = nn.Linear(3 * width, config.reuse_rank, bias=False)
            self.reuse_out = nn.Linear(config.reuse_rank, width, bias=False)
            # A product that begins at nothing and still has gradients.
            nn.init.zeros_(self.reuse_out.weight)
        self.register_buffer(
            "_embedding_VD", None if config.owns_embedding else embedding_VD, persistent=False
        )
        self.register_buffer("_head_VD", None if config.owns_head else head_VD, persistent=False)
        self._head_rows: Tensor | None = None
        offsets = None
        if config.num_drafted:
            ids = torch.arange(num) if drafted_ids is None else drafted_ids
            if drafted_ids is not None and (
                len(ids) != num
                or bool((ids.diff() < 1).any())
                or not 0 <= int(ids[-1]) < config.vocab_size
            ):
                raise ValueError(f"drafted_ids must be {num} of the target's ids, ascending")
            offsets = ids - torch.arange(num)
        self.register_buffer("d2t", offsets)
        self._is_in_order = False
        self.register_load_state_dict_post_hook(_loaded)  # type: ignore[no-untyped-call]  # of torch

    @property
    def drafted_ids(self) -> Tensor | None:
        """The target's id of each row of the head; None: the same."""
        if self.d2t is None or self._is_in_order:
            return None
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def fused(self, features: Tensor) -> Tensor:
        """s of the target's states [.., n, d], layers in the order of `EagleConfig.taps`; shape [.., D]."""
        for number, norm in enumerate(self.fc_norm):
            normed = norm(features[..., number, :])
            features = torch.cat(
                (features[..., :number, :], normed.unsqueeze(-2), features[..., number + 1 :, :]),
                dim=-2,
            )
        rows = features.flatten(-2)
        if self.input_norm is not None:
            rows = self.input_norm(rows)
        return rows if self.fc is None else self.fc(rows)

    def embedded(self, tokens: Tensor) -> Tensor:
        """E of token ids [..]; shape [.., D]."""
        table = self._embedding_VD if self.embed_tokens is None else self.embed_tokens.weight
        assert isinstance(table, Tensor), "it was given"
        return F.embedding(tokens, table)

    def inputs(self, states: Tensor, tokens: Tensor) -> Tensor:
        """u of states [.., D] and the tokens behind them [..]; shape [.., 2 D]."""
        return self.midlayer.inputs(states, self.embedded(tokens))

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of positions; see `rotations`."""
        return rotations(self.config, positions)

    def keys_values(self, inputs_T: Tensor, positions_T: Tensor) -> Tensor:
        """Keys and values of rows u [T, 2 D] at positions; shape (1 layer, T, 2, key heads, head_dim)."""
        return self.midlayer.keys_values(inputs_T, self.rotation(positions_T))[None]

    def head(self) -> Tensor:
        """W [v, D]."""
        if self.lm_head is not None:
            return self.lm_head.weight
        assert isinstance(self._head_VD, Tensor), "it was given"
        ids = self.drafted_ids
        if ids is None:
            return self._head_VD
        if self._head_rows is None or self._head_rows.device != ids.device:
            self._head_rows = self._head_VD[ids]
        return self._head_rows

    def logits(self, states: Tensor) -> Tensor:
        """Of the target's ids [.., V]; minus infinity for those that the net does not propose."""
        return self.logits_of_normed(self.norm(states))

    def logits_of_normed(self, rows: Tensor) -> Tensor:
        """As `logits`, of normed states."""
        drafted, ids = F.linear(rows, self.head()) * self.config.logit_scale, self.drafted_ids
        return drafted if ids is None else spread(drafted, ids, self.config.vocab_size)

    def forward(
        self, states: Tensor, tokens: Tensor, positions: Tensor, every: Tensor, seen: Tensor
    ) -> Tensor:
        """s' of rows; arguments as `EagleLayer.forward`, with the rows' tokens and positions [N, B]."""
        inputs, rotation = self.inputs(states, tokens), self.rotation(positions)
        after: Tensor = self.midlayer(states, inputs, rotation, every, seen)
        return after

    def fed_back(self, states: Tensor) -> Tensor:
        """What the next row reads of s' [.., D]."""
        normed: Tensor = self.norm(states) if self.config.norm_output else states
        return normed

    def retold(self, states: Tensor, read: Tensor, tokens: Tensor) -> Tensor:
        """s' of rows, as if each had read another token than it did: two products of rank r, no pass of the layer.

        Args:
            states: s' [.., D].
            read: The tokens that they read [..].
            tokens: Those that they should have read [..].
        """
        if self.reuse_in is None or self.reuse_out is None:
            return states
        known = (states, self.embedded(tokens), self.embedded(read))
        rows = torch.cat([F.rms_norm(one, one.shape[-1:]) for one in known], dim=-1)
        moved: Tensor = states + self.reuse_out(F.silu(self.reuse_in(rows)))
        return moved


def _loaded(net: EagleNet, _: object) -> None:
    """What was gathered by other ids is gathered again; all of the target's tokens in order are no selection."""
    net._head_rows = None
    table = net.d2t
    net._is_in_order = (
        table is not None and len(table) == net.config.vocab_size and not bool(table.any())
    )
