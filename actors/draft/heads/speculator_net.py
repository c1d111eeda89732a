"""The network of an MLP speculator: a few stages, each of which reads a token and predicts the one after it.

Source: Wertheimer et al. 2024, arXiv 2404.19124. With h[t] the target's hidden state that x[t+1] was drawn from, and x[t+1], stage i
= 0, 1, ... predicts x[t+2+i]:

    s = scaled(h[t])                                                        [.., D]
    s = gelu(norm_i(P_i s + (w_e / w_s) E_i x[t+1+i]))                      [.., M]
    logits = H_i s                                                          [.., V]
    w_s = 2 ^ (-1 / 2k),  w_e = sqrt((1 - w_s^2) M / 2)                     k stages: half of what h says is left after all

With the target's tables, E_i = A_i E and H_i = W B_i, where E and W are the target's embedding and head, and A_i and B_i are trained.

With `feeds: hidden` (Medusa, Cai et al. 2024, arXiv 2401.10774), s is h[t] itself in all stages, and logits = H_i b(..b(s)) with residual blocks
b(s) = s + silu(R s + r) of stage i, H_i its own head or the target's.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.on_states.net_tables import spread

EPSILON = 1e-6


class ShiftedNorm(nn.Module):
    """Division by the root mean square, then a learned scale and shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Of the last dimension."""
        return F.rms_norm(values, values.shape[-1:], eps=EPSILON) * self.weight + self.bias


class SpeculatorNet(nn.Module):
    """See the module. Stages are named by their number from 0 on; those beyond the trained ones use the last one's weights."""

    _embedding_VD: torch.Tensor | None
    _head_VD: torch.Tensor | None
    _draft_ids: torch.Tensor | None

    def __init__(
        self,
        config: SpeculatorConfig,
        *,
        embedding_VD: torch.Tensor | None = None,
        head_VD: torch.Tensor | None = None,
        draft_ids: torch.Tensor | None = None,
    ) -> None:
        """Freshly initialised.

        Args:
            config: The shape.
            embedding_VD: The target's embedding, for `tables: target`. Kept as it is, not among the parameters.
            head_VD: The target's output layer, likewise.
            draft_ids: The target's token of each row of own heads with fewer than V; None: all.

        Raises:
            ValueError: A table of the target is missing or of another shape.
        """
        super().__init__()
        self.config = config
        inner, width, vocab_size = config.inner, config.width, config.vocab_size
        num = config.num_tables
        borrows = config.tables == "target"
        if borrows:
            for name, table in (("embedding_VD", embedding_VD), ("head_VD", head_VD)):
                if table is None or tuple(table.shape) != (vocab_size, width):
                    shape = None if table is None else tuple(table.shape)
                    raise ValueError(f"{name} is {shape}; the shape asks for {vocab_size, width}")
        self.register_buffer("_embedding_VD", embedding_VD if borrows else None, persistent=False)
        self.register_buffer("_head_VD", head_VD if borrows else None, persistent=False)
        self.register_buffer("_draft_ids", draft_ids, persistent=False)
        is_hidden = config.feeds == "hidden"
        self.first = None if is_hidden else nn.Linear(width, inner, bias=False)
        self.later = _linears(config.num_later, inner, inner)
        self.norms = nn.ModuleList(ShiftedNorm(inner) for _ in range(0 if is_hidden else num))
        self.residuals = nn.ModuleList(
            nn.ModuleList(
                nn.Linear(width, width, bias=config.residual_biases)
                for _ in range(config.num_residuals)
            )
            for _ in range(config.num_stages if is_hidden else 0)
        )
        # Names decide which optimiser each gets (`train/loop/optimizer.py`).
        has_embeddings = config.reads_tokens and not borrows
        self.embeddings = nn.ModuleList(
            nn.Embedding(vocab_size, inner) for _ in range(num if has_embeddings else 0)
        )
        num_logits = vocab_size if draft_ids is None else len(draft_ids)
        self.lm_heads = _linears(0 if borrows else num, inner, num_logits)
        self.token_maps = _linears(num if borrows and config.reads_tokens else 0, width, inner)
        self.feature_maps = _linears(num if borrows and not is_hidden else 0, inner, width)
        state_weight = 2.0 ** (-0.5 / config.num_stages)
        token_weight = math.sqrt((1.0 - state_weight**2) * inner / 2.0)
        self.token_ratio = token_weight / state_weight
        """Weight of the token beside that of the state."""
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=1.0 / math.sqrt(inner))
        if borrows and embedding_VD is not None:
            # A borrowed table has a size of its own; its image begins with that of an own one.
            size = float(embedding_VD.float().square().mean().sqrt()) * math.sqrt(width)
            for token_map in self.token_maps:
                nn.init.normal_(matrix(token_map), std=1.0 / math.sqrt(inner) / max(size, EPSILON))

    def stage(self, index: int, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The states after one more token.

        Args:
            index: The stage.
            states: The target's hidden states [.., D] at stage 0, else those of the stage before [.., M].
            tokens: The tokens that follow [..], int64.
        """
        config = self.config
        if self.first is None:
            return states
        table = min(index, config.num_tables - 1)
        if index == 0 or config.feeds == "feature":
            features = states if index == 0 else self._features(index - 1, states)
            if config.scaled:
                features = F.rms_norm(features, features.shape[-1:], eps=EPSILON) / math.sqrt(2.0)
            inputs = self.first(features)
        else:
            inputs = self.later[min(index, config.num_later) - 1](states)
        if config.reads_tokens:
            inputs = inputs + self.token_ratio * self._embedded(table, tokens)
        return F.gelu(self.norms[table](inputs))

    def head(self, index: int, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the logits of a stage's states are the product of: vectors [.., K], and a table [V, K]."""
        if self.config.feeds == "hidden":
            blocks = self.residuals[index]
            assert isinstance(blocks, nn.ModuleList), "it is"
            for block in blocks:
                states = states + F.silu(block(states))
        if self.config.tables == "own":
            table = min(index, self.config.num_tables - 1)
            return states, matrix(self.lm_heads[table])
        assert self._head_VD is not None, "it was given"
        if self.config.feeds != "hidden":
            states = self._features(index, states)
        return states, self._head_VD

    def logits(self, index: int, states: torch.Tensor) -> torch.Tensor:
        """Of the token after those that the states have seen [.., V]; minus infinity for those that no row of the head stands for."""
        values = F.linear(*self.head(index, states)) * self.config.logit_scale
        ids = self._draft_ids
        return values if ids is None else spread(values, ids, self.config.vocab_size)

    def _embedded(self, table: int, tokens: torch.Tensor) -> torch.Tensor:
        if self.config.tables == "own":
            return F.embedding(tokens, matrix(self.embeddings[table]))
        assert self._embedding_VD is not None, "it was given"
        return F.linear(F.embedding(tokens, self._embedding_VD), matrix(self.token_maps[table]))

    def _features(self, index: int, states: torch.Tensor) -> torch.Tensor:
        """The target's hidden states as a stage's states would have them [.., D]."""
        return F.linear(states, matrix(self.feature_maps[min(index, self.config.num_tables - 1)]))


def matrix(module: nn.Module) -> torch.Tensor:
    """The weight of a linear map or an embedding."""
    weight = module.weight
    assert isinstance(weight, torch.Tensor), "it has one"
    return weight


def _linears(count: int, width_in: int, width_out: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(width_in, width_out, bias=False) for _ in range(count))
