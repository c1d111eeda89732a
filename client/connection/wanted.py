"""Arguments: each is of the kind that it must be, or an error names it, before anything is sent."""

from __future__ import annotations

from numbers import Real
from typing import TypeVar

from outrider.client.connection.errors import InvalidRequest

Wanted = TypeVar("Wanted")

MAX_SHOWN = 60
"""Characters of a value in an error message."""


def of_kind(field: str, value: object, kind: type[Wanted] | tuple[type[Wanted], ...]) -> Wanted:
    """The value, if it is of this kind, or of one of these.

    Raises:
        InvalidRequest: It is not; names the field and what is needed.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds):
        raise wrong(field, value, " or ".join(each.__name__ for each in kinds))
    return value


def number(field: str, value: object, needed: str = "a number") -> float:
    """The value, if it is a number that a float can hold; True and False are not.

    Raises:
        InvalidRequest: It is not; names the field and what is needed.
    """
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise wrong(field, value, needed)


def wrong(field: str, value: object, needed: str, *, at: str = "") -> InvalidRequest:
    """The error of a value that is not what it must be; raise what it returns.

    Args:
        field: What the caller calls it.
        value: What it is.
        needed: What it must be.
        at: Where in the field the value is, for instance `[3]`.
    """
    return InvalidRequest(f"{field}{at} is {shown(value)}; {needed} is needed", field=field)


def shown(value: object) -> str:
    """A value as an error message shows it: not longer than a line."""
    try:
        text = " ".join(repr(value).splitlines())
    except ValueError:  # Python writes no number of more than some thousand digits
        return f"a {type(value).__name__} of very many digits"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
