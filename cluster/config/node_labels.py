"""What an actor may ask of the labels of its node, in Ray's own form: `h100`, `!spot`, `in(a,b)`, `!in(a,b)`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

NODE_ID = "ray.io/node-id"
"""Ray's label with the id of a node."""

_VALUE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
SELECTOR = rf"^!?({_VALUE}|in\({_VALUE}(,\s*{_VALUE})*\))$"
"""What a value asked for may look like."""

KEY = r"^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$"
"""What a key may look like."""


def matches(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has what is asked for. A label that is missing equals nothing."""
    return all(_matches(value, labels.get(key)) for key, value in wanted.items())


def none_of(values: Collection[str]) -> str:
    """Asks for any other value than these."""
    return f"!in({','.join(sorted(values))})"


def _matches(wanted: str, value: str | None) -> bool:
    is_negated, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    listed = re.fullmatch(r"in\((.*)\)", wanted)
    allowed = [one.strip() for one in listed[1].split(",")] if listed else [wanted]
    return (value in allowed) != is_negated
