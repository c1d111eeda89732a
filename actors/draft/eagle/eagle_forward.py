"""The pass of an EAGLE-3 net over a few rows, written out: the same numbers as `EagleNet`, with a third of the calls.

A pass over a handful of rows is bound by calls, not by arithmetic, as those of small models are (`engine/models/llama_forward.py`). Here query, key and
value are one product, gate and up another, and angles are looked up. `EagleNet` is trained, stays beside this, and says what each step is.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from outrider.actors.draft.block.block_attention import FUNCTIONS
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.draft.heads.speculator_net import matrix
from outrider.actors.engine.models.norms import norm
from outrider.actors.engine.models.products import joined, product_of
from outrider.actors.engine.protocol import Int64s

FEWEST_POSITIONS = 1024
"""Angles are made for so many positions at first, and then for twice as many as are asked for: 8 head_dim bytes each."""


class EagleForward:
    """A net as functions of its weights, float32. These become views of joined ones; the net goes on working."""

    def __init__(self, net: EagleNet) -> None:
        """
        Args:
            net: Not trained any more, on its device.
        """
        config, layer = net.config, net.midlayer
        attention, mlp = layer.self_attn, layer.mlp
        self._net, self._config = net, config
        self._num_turned = config.num_heads + config.num_key_heads
        self._qkv = product_of(joined(attention.q_proj, attention.k_proj, attention.v_proj))
        self._out = product_of(attention.o_proj)
        self._gate_up = product_of(joined(mlp.gate_proj, mlp.up_proj))
        self._down = product_of(mlp.down_proj)
        self._function = FUNCTIONS[config.activation]
        self._project = None if layer.input_proj is None else product_of(layer.input_proj)
        read = (layer.input_layernorm, layer.hidden_norm)
        self._read_norms_2D = torch.stack([each.weight.detach() for each in read])
        before = layer.attention_layernorm
        self._attention_norm_D = None if before is None else before.weight.detach()
        self._mlp_norm_D = layer.post_attention_layernorm.weight.detach()
        self._last_norm_D = net.norm.weight.detach()
        self._head_norms_AD = None
        if config.has_head_norms:
            heads = (
                (attention.q_norm, config.num_heads),
                (attention.k_norm, config.num_key_heads),
            )
            self._head_norms_AD = torch.cat(
                [matrix(each).detach().expand(count, -1) for each, count in heads]
            )
        self._eps = torch.tensor([config.eps], device=self._last_norm_D.device)
        self._angles_P2D = self._last_norm_D.new_zeros(0, 2, config.head_dim)

    def rows(
        self, states_RD: Tensor, tokens_R: Tensor, positions_R: Tensor, end: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What rows ask and are asked for, before they see each other.

        Args:
            states_RD: The states that they read.
            tokens_R: The tokens beside them.
            positions_R: Of these tokens.
            end: Greater than any position.

        Returns:
            What the sum around attention begins with [R, D], queries [R, heads, head_dim], keys and values [R, 2, key heads, head_dim].
        """
        config = self._config
        pairs = torch.stack((self._net.embedded(tokens_R), states_RD), dim=1)
        read = norm(pairs, self._read_norms_2D, self._eps)
        around, inputs = states_RD, read.flatten(1)
        if self._project is not None:
            around = self._project(inputs)
            assert self._attention_norm_D is not None, "they come together"
            inputs = norm(around, self._attention_norm_D, self._eps)
        elif config.norm_before_residual:
            around = read[:, 1]
        every = self._qkv(inputs).view(len(inputs), -1, config.head_dim)
        turned = every[:, : self._num_turned]
        if self._head_norms_AD is not None:
            turned = norm(turned, self._head_norms_AD, self._eps)
        cosines, sines = self._turns(positions_R, end).unbind(1)
        turned = torch.addcmul(
            turned * cosines[:, None], turned.roll(config.head_dim // 2, -1), sines[:, None]
        )
        keys, values = turned[:, config.num_heads :], every[:, self._num_turned :]
        return around, turned[:, : config.num_heads], torch.stack((keys, values), dim=1)

    def after(
        self,
        around_RD: Tensor,
        queries_RHD: Tensor,
        every: Tensor,
        seen: Tensor,
        lines_EN: Tensor,
        places_R: Tensor,
    ) -> Tensor:
        """s' of rows [R, D].

        Args:
            around_RD: See `rows`.
            queries_RHD: See `rows`.
            every: Keys and values of each line [E, C, 2, key heads, head_dim].
            seen: Which row of a line sees which of them, bool [E, 1, N, C].
            lines_EN: The rows of each line, filled up with any.
            places_R: Where each row is among those of all lines.
        """
        keys, values = every.permute(2, 0, 3, 1, 4)
        queries = queries_RHD.index_select(0, lines_EN.flatten())
        queries = queries.view(*lines_EN.shape, *queries.shape[1:]).transpose(1, 2)
        attended = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=seen, enable_gqa=True
        )
        lines_XA = attended.transpose(1, 2).reshape(lines_EN.numel(), -1)
        around = around_RD + self._out(lines_XA.index_select(0, places_R))
        gates, ups = self._gate_up(norm(around, self._mlp_norm_D, self._eps)).chunk(2, dim=-1)
        return around + self._down(self._function(gates).mul_(ups))

    def logits(self, states_RD: Tensor) -> Tensor:
        """As `EagleNet.logits`."""
        return self._net.logits_of_normed(norm(states_RD, self._last_norm_D, self._eps))

    def _turns(self, positions_R: Tensor, end: int) -> Tensor:
        """Cosines, and sines with the sign that they have for a rolled head, of positions. Shape (R, 2, head_dim)."""
        if end > len(self._angles_P2D):
            size = max(2 * end, FEWEST_POSITIONS)
            positions_P = torch.arange(size, device=positions_R.device)
            cosines, sines = (each[:, 0] for each in self._net.rotation(positions_P))
            # (a, b) turns into (a cos - b sin, b cos + a sin): the half that is rolled to the front is subtracted.
            self._angles_P2D = torch.stack(
                (torch.cat((cosines, cosines), -1), torch.cat((-sines, sines), -1)), dim=1
            )
        return self._angles_P2D.index_select(0, positions_R)


def lines_of(slots_R: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Rows of several slots as lines of one length, for attention.

    Args:
        slots_R: The slot of each row, those of one slot one after another.

    Returns:
        The slot of each line [E]; the rows of each line [E, N], filled up with row 0; and where each row is among the E N of them [R].
    """
    is_first_R = np.ones(len(slots_R), np.bool_)
    np.not_equal(slots_R[1:], slots_R[:-1], out=is_first_R[1:])
    starts_E = is_first_R.nonzero()[0]
    line_R = is_first_R.cumsum() - 1
    behind_R = np.arange(len(slots_R)) - starts_E[line_R]
    lines_EN = np.zeros((len(starts_E), int(behind_R.max()) + 1), np.int64)
    lines_EN[line_R, behind_R] = np.arange(len(slots_R))
    return slots_R[starts_E], lines_EN, line_R * lines_EN.shape[1] + behind_R
