"""The forward of Llama-shaped models, written out: the same numbers as the modules compute, with a third of the calls.

A pass over a few rows of a small model is bound by calls, not by arithmetic: a layer of transformers takes about a hundred
operations, most of them views, norms and rotary embeddings, and the modules around them. Here a layer has one product for query,
key and value, one for gate and up, and the rotation of queries and keys in one go (values are rotated by nothing).
Cache and attention are the engine's own, as on the plain path, which runs the model's modules and stays beside this one.

Which models fit is told by their parts, not by their name alone (`llama_weights.py`); the probe at load compares with the
modules' logits (`probe.check_tree`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from outrider.actors.engine.attention.attention import Attend, AttentionParams
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.models.llama_weights import LlamaLayer, LlamaWeights
from outrider.actors.engine.models.norms import norm, norm_in_float32
from outrider.actors.engine.tapped_states import TappedStates

MAX_ERROR = {torch.float32: 1e-4}
"""Greatest difference from the modules' logits, as a share of their spread, up to which this forward is trusted; for other
types, what the probe allows. Rounding in float32 gives about 1e-6."""


class LlamaForward:
    """A model as functions of its weights."""

    def __init__(self, weights: LlamaWeights, *, max_context: int) -> None:
        """
        Args:
            weights: Taken from a model.
            max_context: Positions that rows may have.
        """
        self.weights = weights
        self._params = [
            AttentionParams(scaling=weights.scaling, window=layer.window)
            for layer in weights.layers
        ]
        self._angles_P2D = _angles(weights, max_context)
        self._eps = torch.tensor([weights.eps], device=weights.embedding.device)
        self._norm = norm if weights.embedding.dtype == torch.float32 else norm_in_float32

    def __call__(
        self,
        tokens_1M: Tensor,
        positions_1M: Tensor,
        cache: PassCache,
        attend: Attend,
        wanted: Tensor | None,
        tapped: TappedStates | None = None,
    ) -> Tensor:
        """Logits of packed rows.

        Args:
            tokens_1M: Token ids, shape (1, M).
            positions_1M: Their positions.
            cache: Takes the new keys and values of each layer.
            attend: Attends in each layer.
            wanted: Rows whose logits are wanted; None: all.
            tapped: Takes hidden states; None: none are wanted.

        Returns:
            Shape (wanted rows, vocabulary), in the type of the weights.
        """
        weights = self.weights
        hidden_MH = F.embedding(tokens_1M[0], weights.embedding)
        rotation = self._rotation(positions_1M[0])
        for index, layer in enumerate(weights.layers):
            if tapped is not None:
                tapped.see(index, hidden_MH)
            hidden_MH = hidden_MH + self._attention(
                index, layer, hidden_MH, rotation, cache, attend
            )
            gates_MI, ups_MI = layer.gate_up(
                self._norm(hidden_MH, layer.mlp_norm, self._eps)
            ).chunk(2, dim=-1)
            hidden_MH = hidden_MH + layer.down(F.silu(gates_MI).mul_(ups_MI))
        if tapped is not None:
            num_blocks = len(weights.layers)
            tapped.see(num_blocks, hidden_MH)
            if tapped.wants(num_blocks + 1):
                rows_KH = tapped.rows_of(hidden_MH)
                tapped.put(num_blocks + 1, self._norm(rows_KH, weights.last_norm, self._eps))
        if wanted is not None:
            hidden_MH = hidden_MH.index_select(0, wanted)
        return weights.head(self._norm(hidden_MH, weights.last_norm, self._eps))

    def _attention(
        self,
        index: int,
        layer: LlamaLayer,
        hidden_MH: Tensor,
        rotation: tuple[Tensor, Tensor],
        cache: PassCache,
        attend: Attend,
    ) -> Tensor:
        weights = self.weights
        num_rows, num_turned = hidden_MH.shape[0], weights.num_heads + weights.num_key_heads
        every = layer.qkv(self._norm(hidden_MH, layer.attention_norm, self._eps))
        every_MAD = every.view(num_rows, num_turned + weights.num_key_heads, weights.head_dim)
        if layer.head_norms_TD is not None:
            turned = every_MAD[:, :num_turned]
            turned.copy_(self._norm(turned, layer.head_norms_TD, self._eps))
        cosines, sines = rotation
        half = weights.head_dim // 2
        every_MAD = torch.addcmul(every_MAD * cosines, every_MAD.roll(half, -1), sines)
        # (1, heads, M, head_dim), as transformers hands them to caches and attention functions.
        every_1AMD = every_MAD.transpose(0, 1).unsqueeze(0)
        cache.update(
            every_1AMD[:, weights.num_heads : num_turned], every_1AMD[:, num_turned:], index
        )
        attended = attend(index, every_1AMD[:, : weights.num_heads], self._params[index])
        return layer.out(attended.reshape(num_rows, -1))

    def _rotation(self, positions_M: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of each row's heads, shape (M, heads, head_dim); 1 and 0 for its values."""
        weights = self.weights
        num_turned = weights.num_heads + weights.num_key_heads
        angles_M2D = self._angles_P2D.index_select(0, positions_M)
        shape = (len(positions_M), num_turned + weights.num_key_heads, weights.head_dim)
        cosines, sines = angles_M2D.new_ones(shape), angles_M2D.new_zeros(shape)
        cosines[:, :num_turned] = angles_M2D[:, :1]
        sines[:, :num_turned] = angles_M2D[:, 1:]
        return cosines, sines


def _angles(weights: LlamaWeights, max_context: int) -> Tensor:
    """Cosines, and sines with the sign that they have for a rolled head, of each position. Shape (P, 2, head_dim)."""
    device = weights.embedding.device
    positions_1P = torch.arange(max_context, device=device).unsqueeze(0)
    with torch.inference_mode():
        cosines, sines = weights.rotary(weights.embedding[:1], positions_1P)
        # The half that is rolled to the front is subtracted: (a, b) turns into (a cos - b sin, b cos + a sin).
        sines[..., : weights.head_dim // 2].neg_()
        return torch.stack((cosines[0], sines[0]), dim=1)
