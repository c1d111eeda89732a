"""The shape of a block-parallel draft model: everything but its weights. Plain data, a JSON file beside the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.actors.exchange.feedback_request import FeedbackRequest, Layer

KIND = "dspark"
"""`model_type` in the file."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig:
    """DFlash (arXiv 2602.06036) and DSpark (DeepSeek-AI 2026); `block_net.BlockNet` has the equations."""

    vocab_size: int
    """V: the target's token ids."""

    width: int
    """D: numbers of a hidden state of the target, and of the draft model's own."""

    taps: tuple[Layer, ...]
    """Layers of the target whose states are fused, as `exchange.feedback_request.Layer` counts them."""

    num_layers: int = 2
    """Blocks of the draft model."""

    num_heads: int = 4
    num_key_heads: int = 2
    head_dim: int = 40

    inner: int = 320
    """Width of the gated product."""

    block: int = 8
    """B: slots of a pass. Slot 0 holds the newest token, each slot predicts the token behind its own place. No other width than the
    trained one is ever run: all slots see each other."""

    window: int = 128
    """Positions before a block that it sees, at most."""

    rank: int = 32
    """Of the Markov head. 0: there is none, which is DFlash."""

    has_confidence: bool = True
    """Whether there is a confidence head."""

    most_revealed: int = 0
    """Tokens behind the newest hidden state's that a pass may be told, beside the one that every pass is told. 0: not trained for any."""

    rope_theta: float = 10_000.0
    eps: float = 1e-6

    target_fingerprint: str = ""
    """Digest of the target's weights; empty: not known."""

    tables_digest: str = ""
    """Digest of the target's embedding and head (`target_tables.digest_of`); empty: not known, and not checked."""

    tokenizer_fingerprint: str = ""
    """Digest of the target's tokenizer; empty: not known."""

    eos_token_ids: tuple[int, ...] = ()
    """The target's end-of-text tokens."""

    target: str = ""
    """Where the target's tables are: a folder or `demo:NAME`. A relative folder is meant from the file's own."""

    def __post_init__(self) -> None:
        for name in SIZES:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")
        for name, most in (("rank", self.vocab_size), ("most_revealed", self.block - 1)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(f"{name} is {value!r}; it must be 0 to {most}")
        if self.num_heads % self.num_key_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}, which {self.num_key_heads} key heads do not divide"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; it is rotated in pairs, so even")
        if not self.taps:
            raise ValueError("taps is empty; name layers of the target")
        _ = self.request

    @property
    def request(self) -> FeedbackRequest:
        """What is asked of the target."""
        return FeedbackRequest(layers=self.taps, width=self.width)

    def as_json(self) -> dict[str, Any]:
        """What the file holds."""
        return {"model_type": KIND, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BlockConfig:
        """The shape that a file holds.

        Raises:
            ValueError: It is of another kind, or a field is unknown, missing or wrong.
        """
        given = dict(content)
        if (kind := given.pop("model_type", None)) != KIND:
            raise ValueError(f"model_type is {kind!r}, not {KIND!r}")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := given.keys() - known:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        for name in ("taps", "eos_token_ids"):
            value = given.get(name, ())
            ok = isinstance(value, list | tuple) and all(
                type(one) is int or (name == "taps" and one == "norm") for one in value
            )
            if not ok:
                raise ValueError(f"{name} is {value!r}; it must be a list")
            given[name] = tuple(value)
        try:
            return cls(**given)
        except TypeError as error:
            raise ValueError(str(error)) from None
