"""Numbers that a request may choose for a method, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberOption:
    """A number that a request may choose for a method."""

    default: float
    """In force where a request names none."""

    least: float
    """Smallest value."""

    most: float
    """Greatest value."""

    help: str
    """What it does, in one sentence."""


def settle(
    method: str, options: Mapping[str, NumberOption], given: Mapping[str, float]
) -> dict[str, float]:
    """All options of a method: those given, and the others' defaults.

    Args:
        method: Its name.
        options: What it takes, by name.
        given: What somebody asked for.

    Raises:
        ValueError: One is unknown or outside its interval; names it and says what is possible.
    """
    for name, value in given.items():
        option = options.get(name)
        if option is None:
            known = ", ".join(options) or "none"
            raise ValueError(f"{method} has no option {name!r}; it has {known}")
        if not option.least <= value <= option.most:
            raise ValueError(
                f"{name} of {method} must be in [{option.least:g}, {option.most:g}], got {value:g}"
            )
    return {name: given.get(name, option.default) for name, option in options.items()}


def check_description(kind: str, method: str, options: Mapping[str, NumberOption]) -> None:
    """Refuses a method whose name is none, or whose defaults are outside their intervals: they are what requests get that name none.

    Args:
        kind: What it is, for messages.
        method: Its name.
        options: What it takes, by name.

    Raises:
        ValueError: Says what is wrong.
    """
    if not method.isidentifier() or method != method.lower():
        raise ValueError(f"{kind} {method!r}: a name is lower case, words joined by underscores")
    try:
        settle(method, options, {name: option.default for name, option in options.items()})
    except ValueError as error:
        raise ValueError(f"{kind} {method!r}: as a default, {error}") from None
