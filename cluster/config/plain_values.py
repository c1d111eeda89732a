"""What a file may hold: texts, numbers, truths, lists, and mappings whose keys are texts; no more than a service needs."""

from __future__ import annotations

import math
from typing import Any

from outrider.cluster.config.config_errors import ConfigProblem, path_of, shown

MAX_VALUES = 100_000
"""Most values of a file, those of aliases counted wherever they stand: some lines of YAML can stand for more than a memory holds."""

MAX_DEPTH = 50
"""Most lists and mappings in each other."""

MAX_DIGITS = 400
"""Most digits of a whole number: the largest float has 309, and Python writes none of more than 4,300."""

NESTED = f"lists and mappings are more than {MAX_DEPTH} deep, or one holds itself"
"""What is said about both, which look alike."""


def problem_in(data: Any) -> ConfigProblem | None:
    """The first value that is not plain, or that is one too many; None: there is none."""
    left = MAX_VALUES
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while waiting:
        place, value = waiting.pop()
        left -= 1
        if left < 0:
            return ConfigProblem("", f"more than {MAX_VALUES:,} values, those of aliases counted")
        if len(place) > MAX_DEPTH:
            return ConfigProblem(path_of(place[:1]), NESTED)
        if isinstance(value, dict):
            for key in value:
                if (wrong := _wrong_key(key)) is not None:
                    return ConfigProblem(path_of(place), wrong)
            waiting += [((*place, key), inner) for key, inner in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*place, at), value[at]) for at in reversed(range(len(value)))]
        elif (wrong := _wrong(value)) is not None:
            return ConfigProblem(path_of(place), wrong)
    return None


def _wrong_key(key: Any) -> str | None:
    if not isinstance(key, str):
        return f"the key {shown(key)} is {_kind(key)}; keys must be texts, so put it in quotes"
    wrong = _wrong(key)
    return None if wrong is None else f"the key {shown(key)} {wrong}"


def _wrong(value: Any) -> str | None:
    if isinstance(value, str):
        if "\0" in value:
            return "holds a NUL character, which no name, path or address may"
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return "holds half a character (a lone surrogate)"
        return None
    if isinstance(value, int):
        # By bits, since writing it in digits is what may fail.
        if value.bit_length() > MAX_DIGITS * math.log2(10):
            return f"is a whole number of more than {MAX_DIGITS} digits"
        return None
    if value is None or isinstance(value, float):
        return None
    return f"is {_kind(value)}; expected text, a number, true, false, a list or a mapping: put text in quotes"


def _kind(value: Any) -> str:
    kinds = {"NoneType": "null", "bool": "a truth", "int": "a number", "float": "a number"}
    name = type(value).__name__
    return kinds.get(name, f"of type {name}")
