"""The shape of a block-parallel draft model: everything but its weights. Plain data, a JSON file beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from outrider.actors.draft.on_states.net_shape import LayerShape, check_sizes
from outrider.actors.exchange.feedback_request import FeedbackRequest, Layer

SIZES = (
    "vocab_size",
    "width",
    "num_layers",
    "num_heads",
    "num_key_heads",
    "head_dim",
    "inner",
    "block",
    "window",
)
"""Fields that are numbers of at least one."""


MARKOV_HEADS = ("vanilla", "gated")
"""Kinds of Markov heads whose sum depends on a slot and the token before it, not on the path to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig(LayerShape):
    """DFlash (arXiv 2602.06036) and DSpark (DeepSeek-AI 2026); `block_net.BlockNet` has the equations."""

    kind: ClassVar[str] = "dspark"

    taps: tuple[Layer, ...]
    """Layers of the target whose states are fused, as `exchange.feedback_request.Layer` counts them."""

    target_width: int = 0
    """Numbers of a hidden state of the target; 0: D."""

    num_layers: int = 2
    """Blocks of the draft model."""

    block: int = 8
    """B: slots of a pass. Slot 0 holds the newest token. No other width than the trained one is ever run: all slots see each other."""

    first_slot: int = 0
    """The slot that predicts the token behind the newest: with 0 each predicts the token behind its own place, with 1 the one at it, and
    slot 0 predicts nothing."""

    is_causal: bool = False
    """Whether a slot sees none of the later ones of its block."""

    both_ways: tuple[int, ...] = ()
    """Layers in which it sees them all the same."""

    window: int = 128
    """Positions before a block that it sees, at most."""

    rank: int = 32
    """Of the Markov head. 0: there is none, which is DFlash."""

    markov: str = "vanilla"
    """Kind of the Markov head: `vanilla`, or `gated` by the slot's state."""

    has_confidence: bool = True
    """Whether there is a confidence head."""

    confidence_reads_token: bool = True
    """Whether it reads what the Markov head knows of the token before."""

    most_revealed: int = 0
    """Tokens behind the newest hidden state's that a pass may be told, beside the one that every pass is told. 0: not trained for any."""

    normed_taps: bool = True
    """Whether each tapped state is brought to one size before the states are fused."""

    mask_token_id: int | None = None
    """Token whose embedding slots hold that are told none. None: a vector of the net's own."""

    embedding_scale: float = 1.0
    """What embeddings are multiplied by."""

    logit_scale: float = 1.0
    """What the head's logits are multiplied by."""

    soft_cap: float = 0.0
    """c: behind that, z becomes c tanh(z / c). 0: it stays."""

    def __post_init__(self) -> None:
        check_sizes(self, SIZES)
        check_sizes(self, ("target_width",), least=0)
        for name, most in (
            ("rank", self.vocab_size),
            ("first_slot", min(1, self.block - 1)),
            ("most_revealed", self.block - 1 - self.first_slot),
            ("mask_token_id", self.vocab_size - 1),
        ):
            value = getattr(self, name)
            if (name, value) == ("mask_token_id", None):
                continue
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(f"{name} is {value!r}; it must be 0 to {most}")
        if self.markov not in MARKOV_HEADS:
            raise ValueError(f"markov is {self.markov!r}; it must be {' or '.join(MARKOV_HEADS)}")
        if not set(self.both_ways) <= set(range(self.num_layers)):
            raise ValueError(
                f"both_ways is {self.both_ways!r}; it must name layers of 0 to {self.num_layers - 1}"
            )
        self.check_layer()
        if not self.taps:
            raise ValueError("taps is empty; name layers of the target")
        _ = self.request

    @property
    def state_width(self) -> int:
        """Numbers of a hidden state of the target."""
        return self.target_width or self.width

    @property
    def request(self) -> FeedbackRequest:
        """What is asked of the target."""
        return FeedbackRequest(layers=self.taps, width=self.state_width)

    @property
    def reach(self) -> int:
        """Tokens behind the newest one that a block foresees."""
        return self.block - self.first_slot
