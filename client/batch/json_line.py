"""The JSON value of a line of the input, read strictly. Pure."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from outrider.client.batch.body import BadRecord, JsonObject

MAX_DIGITS = 4000
"""Of a whole number: Python reads and writes some more."""


def load(raw: bytes) -> object:
    """The value.

    Raises:
        BadRecord: The line is no JSON, or holds what another reader would read otherwise.
        RecursionError: It is nested too deeply.
    """
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except ValueError as error:
        raise BadRecord("invalid_json", f"is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object, unless it names a field twice: one of the two would be lost silently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} is there twice")
    return found


def _integer(digits: str) -> int:
    """A whole number, unless it is longer than Python reads or writes one."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, more than {MAX_DIGITS}")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
