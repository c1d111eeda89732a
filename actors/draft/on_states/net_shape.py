"""The shape of a draft net from the JSON that it was written to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from outrider.actors.draft.checkpoints.layer_fields import MOST_COUNTED

Shape = TypeVar("Shape")

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


def shape_of(cls: type[Shape], kind: str, content: Mapping[str, Any]) -> Shape:
    """The shape that a file holds.

    Args:
        cls: A frozen dataclass of plain fields.
        kind: Its `model_type`.
        content: Of the file.

    Raises:
        ValueError: It is of another kind, or a field is unknown, missing or wrong.
    """
    given = dict(content)
    if (found := given.pop("model_type", None)) != kind:
        raise ValueError(f"model_type is {found!r}, not {kind!r}")
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
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
