"""The shape of a draft net that reads the target's tables: what every kind has, and how it lies in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from outrider.actors.draft.checkpoints.layer_fields import ACTIVATIONS, MOST_COUNTED

LISTS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "taps": ("layers", (int,)),
    "both_ways": ("layers", (int,)),
    "eos_token_ids": ("token ids", (int,)),
    "first": ("numbers", (int, float)),
    "among": ("numbers", (int, float)),
}
"""Fields that are tuples, of what, and their types."""


LARGEST_SIZE = 1 << 24
"""Of a tensor's dimension, at most."""

LARGEST: Mapping[str, int] = {
    **dict.fromkeys(
        ("num_layers", "num_stages", "num_residuals", "num_steps", "block"), MOST_COUNTED
    ),
    "window": 1 << 16,
}
"""Likewise, of what is no dimension."""


def check_sizes(shape: object, names: Sequence[str], *, least: int = 1) -> None:
    """Refuses a shape whose named fields are no sizes that a net can have.

    Raises:
        ValueError: One is not; the message says what is allowed.
    """
    for name in names:
        value, most = getattr(shape, name), LARGEST.get(name, LARGEST_SIZE)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} is {value!r}; it must be a whole number of {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetShape:
    """Everything of a net but its weights. Plain data, a JSON file beside the weights."""

    kind: ClassVar[str]
    """`model_type` in the file."""

    vocab_size: int
    """V: the target's token ids."""

    target_fingerprint: str = ""
    """Digest of the target's weights; empty: not known."""

    tables_digest: str = ""
    """Digest of the target's embedding and head (`target_tables.digest_of`); empty: not known, and not checked."""

    tokenizer_fingerprint: str = ""
    """Digest of the target's tokenizer; empty: not known, and any target of the same vocabulary is served."""

    eos_token_ids: tuple[int, ...] = ()
    """The target's end-of-text tokens."""

    target: str = ""
    """Where the target's tables are: a folder, a hub id or `demo:NAME`. A relative folder is meant from the file's own."""

    def as_json(self) -> dict[str, Any]:
        """What the file holds."""
        return {"model_type": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The shape that a file holds.

        Raises:
            ValueError: It is of another kind, or a field is unknown, missing or wrong.
        """
        given = dict(content)
        if (found := given.pop("model_type", None)) != cls.kind:
            raise ValueError(f"model_type is {found!r}, not {cls.kind!r}")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := given.keys() - known:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        for name, (what, types) in LISTS.items():
            value = given.get(name, ())
            ok = isinstance(value, list | tuple) and all(
                type(one) in types or (name == "taps" and one == "norm") for one in value
            )
            if not ok:
                raise ValueError(f"{name} is {value!r}; it must be a list of {what}")
            if name in given:
                given[name] = tuple(value)
        try:
            return cls(**given)
        except TypeError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape(NetShape):
    """Of a net of decoder layers, of Llama's and Qwen3's shape."""

    width: int
    """D: numbers of the net's own states."""
    num_heads: int = 4
    num_key_heads: int = 2
    head_dim: int = 40
    inner: int = 320
    """Width of the gated product."""
    activation: str = "silu"
    """Its function, as `layer_fields.ACTIVATIONS`."""
    has_biases: bool = False
    """Whether the maps of attention have biases."""
    rotary_dim: int | None = None
    """How many numbers of a head are rotated, the first of it; None: all."""
    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    """As `on_states.rotary.frequencies` takes it."""
    eps: float = 1e-6

    def check_layer(self) -> None:
        """Refuses a function that is not there, and heads that cannot be grouped, or rotated.

        Raises:
            ValueError: The message says what is allowed.
        """
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation is {self.activation!r}; it must be {' or '.join(ACTIVATIONS)}"
            )
        if self.num_heads % self.num_key_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}, which {self.num_key_heads} key heads do not divide"
            )
        rotated = self.head_dim if self.rotary_dim is None else self.rotary_dim
        if type(rotated) is not int or rotated % 2 or not 0 < rotated <= self.head_dim:
            raise ValueError(
                f"head_dim is {self.head_dim}, of which {rotated!r} are rotated; it must be an even number of them"
            )
