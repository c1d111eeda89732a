"""What is wrong with a configuration, said so that it can be mended: the place, the value, what is allowed."""

from __future__ import annotations

import difflib
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

CUT = "..."
"""What stands for the middle of a long text."""

WORD, SECTION = "[word]", "[section]"
"""Tags of a field that takes a word or a section; pydantic names the one that it tried in its places."""

MARKS = frozenset(("[key]", WORD, SECTION))
"""Stand in pydantic's places beside what the file says; the first, for the key of a mapping in front of it."""

TEXTS = ("string_type", "literal_error", "enum")
"""Pydantic's kinds of problems where a text is wanted. YAML reads some texts as something else: `no` as a truth, `1` as a number."""

MAX_MESSAGE = 1_000
"""Longest message of a problem; what is longer repeats what the file says."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is not allowed."""

    path: str
    """Where, as in `targets[0].dtype`; empty for the whole."""

    message: str
    """What, and what is allowed."""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return shortened(text, MAX_MESSAGE)


class ConfigError(ValueError):
    """A configuration that is not allowed; nothing was started."""

    def __init__(self, source: str, problems: Sequence[ConfigProblem]) -> None:
        super().__init__(source, tuple(problems))
        self.source = source
        self.problems = tuple(problems)

    def __str__(self) -> str:
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        return "\n".join([f"{self.source}: {count}", *(f"  {each}" for each in self.problems)])


def problems_of(error: ValidationError, model: type[BaseModel]) -> tuple[ConfigProblem, ...]:
    """Every problem of a failed validation, in the file's order of sections.

    Args:
        error: What pydantic found.
        model: The model that was validated, to know the keys at each place.
    """
    found = error.errors(include_url=False)
    places = [details["loc"] for details in found]
    return tuple(_problem(details, model) for details in found if not _follows(details, places))


def _follows(details: Any, places: Sequence[tuple[str | int, ...]]) -> bool:
    """A list is too short only because what is wrong in it does not count."""
    here = details["loc"]
    return details["type"] == "too_short" and any(
        len(place) > len(here) and place[: len(here)] == here for place in places
    )


def _problem(details: Any, model: type[BaseModel]) -> ConfigProblem:
    location: tuple[str | int, ...] = tuple(part for part in details["loc"] if part not in MARKS)
    kind: str = details["type"]
    if kind == "extra_forbidden":
        return ConfigProblem(path_of(location[:-1]), _unknown_key(location, model))
    if kind == "missing":
        return ConfigProblem(path_of(location[:-1]), f"the key {location[-1]!r} is missing")
    if kind == "value_error":
        return ConfigProblem(path_of(location), str(details["ctx"]["error"]))
    if kind == "string_pattern_mismatch":
        pattern = details["ctx"]["pattern"]
        return ConfigProblem(
            path_of(location), f"must match {pattern}, but is {shown(details['input'])}"
        )
    if kind == "too_short":
        least = details["ctx"]["min_length"]
        return ConfigProblem(
            path_of(location), f"must have at least {least} entr{'ies' if least > 1 else 'y'}"
        )
    if kind == "tuple_type":
        return ConfigProblem(path_of(location), f"must be a list, but is {shown(details['input'])}")
    if kind == "model_type":
        found = "empty" if details["input"] is None else shown(details["input"])
        return ConfigProblem(
            path_of(location),
            f"must be keys and values, but is {found}; write them below it, or leave it out",
        )
    message = details["msg"].replace("Input should be", "must be", 1)
    is_unquoted = kind in TEXTS and isinstance(details["input"], bool | int | float)
    hint = "; put text in quotes" if is_unquoted else ""
    return ConfigProblem(path_of(location), f"{message}, but is {shown(details['input'])}{hint}")


def _unknown_key(location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    allowed = sorted(_keys_at(location[:-1], model))
    key = str(location[-1])
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"allowed here: {', '.join(allowed)}"
    return f"unknown key {key!r}; {hint}"


def _keys_at(location: tuple[str | int, ...], model: type[BaseModel]) -> tuple[str, ...]:
    current = model
    for part in location:
        if part in current.model_fields:  # else a number of a list, or which of several kinds it is
            assert isinstance(part, str)
            inner = _model_in(current.model_fields[part].annotation)
            if inner is None:
                return ()
            current = inner
    return tuple(current.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also inside a list or an optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, list, Union, types.UnionType, Annotated):
        found = (_model_in(argument) for argument in get_args(annotation))
        return next((each for each in found if each is not None), None)
    return None


def path_of(location: Sequence[str | int]) -> str:
    """A place as people write it: `targets[0].dtype`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def shown(value: Any) -> str:
    """A value as a message shows it, no longer than a line."""
    return shortened(repr(value), 80)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and its end, which says what is allowed."""
    if len(text) <= most:
        return text
    half = (most - len(CUT)) // 2
    return f"{text[: most - len(CUT) - half]}{CUT}{text[-half:]}"
