"""What a drafter asks of a target beyond tokens: hidden states of named layers, or the likeliest tokens, at committed positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layer = int | Literal["norm"]
"""A place in a model of B blocks: 0 is the output of the embedding, b the residual stream after b blocks and before any norm (B: the input
of the final norm), "norm" what comes out of the final norm and goes into the head."""

MAX_LAYERS = 64
"""Layers of a request, at most."""

MAX_TOP_K = 64
"""Likeliest tokens of a position, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRequest:
    """What a drafting method reads of a target's passes. Nothing is computed or sent for drafters that have none."""

    layers: tuple[Layer, ...] = ()
    """Layers whose hidden states are wanted, in the order in which they are to come."""

    top_k: int = 0
    """How many of the likeliest next tokens are wanted at each position, with their log-probabilities; 0: none."""

    wants_rejected: bool = False
    """Whether hidden states of candidates that were verified and not drawn are wanted, too."""

    width: int = 0
    """Width of a hidden state that the method was made for; a target of another refuses. 0: any."""

    def __post_init__(self) -> None:
        if not self.layers and not self.top_k:
            raise ValueError("a feedback request names layers, or top_k greater than 0")
        if len(self.layers) > MAX_LAYERS:
            raise ValueError(f"layers are {len(self.layers)}; {MAX_LAYERS} at most")
        if len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers is {self.layers}; each at most once")
        for layer in self.layers:
            if layer != "norm" and layer < 0:
                raise ValueError(
                    f"layer {layer}: a layer is 'norm' or the number of blocks below it, from 0"
                )
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 to {MAX_TOP_K}")
        if self.wants_rejected and not self.layers:
            raise ValueError("wants_rejected needs layers: it is hidden states that are kept")
