"""Reads a configuration file into plain values, and writes them: texts, numbers, truths, lists, and mappings whose keys are texts; refuses what YAML would swallow silently,
and more than a service needs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from outrider.cluster.config.config_errors import ConfigError, ConfigProblem, path_of, shown

MAX_BYTES = 1 << 20
"""Largest file that is read, in bytes: a real configuration has a few kB, and a wrong path may be a model's weights."""


MERGE = "tag:yaml.org,2002:merge"
"""YAML's tag of the key `<<`."""

INT = "tag:yaml.org,2002:int"
"""YAML's tag of whole numbers."""

POWER = (
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    "+-0123456789",
)
"""Numbers such as 1e6, which JSON and YAML 1.2 know, and PyYAML takes for text: tag, form and first characters."""

OCTAL = re.compile(r"[-+]?0[0-7_]+$")
"""Whole numbers that YAML reads to the base 8, as nobody expects."""

MAX_VALUES = 100_000
"""Most values of a file, those of aliases counted wherever they stand: some lines of YAML can stand for more than a memory holds."""

MAX_DEPTH = 50
"""Most lists and mappings in each other."""

MAX_DIGITS = 400
"""Most digits of a whole number: the largest float has 309, and Python writes none of more than 4,300."""

NESTED = f"lists and mappings are more than {MAX_DEPTH} deep, or one holds itself"
"""What is said about both, which look alike."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that occurs twice, of which YAML would keep the last, and reads no number of endless digits."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                raise yaml.MarkedYAMLError(
                    problem="<< is not taken; write the keys out", problem_mark=key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.MarkedYAMLError(
                    problem="a key is a list or a mapping; keys must be texts",
                    problem_mark=key_node.start_mark,
                )
            if key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} occurs twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Says where a value is that is not of the type of its tag, for which PyYAML raises whatever it stumbles over."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(
                problem=f"{shown(node.value)} cannot be read as {kind}",
                problem_mark=node.start_mark,
            ) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Raises before Python would, for which digits beyond a bound are an error without a place, and where 010 would be eight."""
        if node.tag == INT and len(node.value) > MAX_DIGITS:
            raise yaml.MarkedYAMLError(
                problem=f"a whole number of more than {MAX_DIGITS} digits",
                problem_mark=node.start_mark,
            )
        if node.tag == INT and OCTAL.match(node.value) is not None:
            raise yaml.MarkedYAMLError(
                problem=f"{shown(node.value)} begins with a 0, so that YAML reads it to the base 8; leave the 0 out",
                problem_mark=node.start_mark,
            )
        return super().construct_scalar(node)


_StrictLoader.add_implicit_resolver(*POWER)


class _Dumper(yaml.SafeDumper):
    """Puts into quotes what would else be read as something else."""


_Dumper.add_implicit_resolver(*POWER)


def written(data: dict[str, Any]) -> bytes:
    """A file that `read_mapping` reads as the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode()


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's content. An empty file is an empty configuration.

    Raises:
        ConfigError: It cannot be read, is too large or malformed, or holds something other than a mapping.
    """
    text = _read_text(path)
    try:
        if path.suffix == ".json":
            data = json.loads(text, object_pairs_hook=_strict_object, parse_int=_whole)
        else:
            data = yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(str(path), (ConfigProblem(where, error.problem or str(error)),)) from None
    except RecursionError:
        raise ConfigError(str(path), (ConfigProblem("", NESTED),)) from None
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(str(path), (ConfigProblem("", f"not valid: {error}"),)) from None
    if (problem := problem_in(data)) is not None:
        raise ConfigError(str(path), (problem,))
    if data is None:
        return {}
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise ConfigError(
            str(path), (ConfigProblem("", f"holds a {kind}; expected keys and values"),)
        )
    return data


def _strict_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses a key that occurs twice, of which JSON would keep the last."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} occurs twice in one object")
        found[key] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number of more than {MAX_DIGITS} digits: {shown(digits)}")
    return int(digits)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(str(path), (ConfigProblem("", f"cannot be read: {reason}"),)) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(str(path), (ConfigProblem("", f"has more than {MAX_BYTES} bytes"),))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), (ConfigProblem("", f"is not UTF-8 text: {error}"),)) from None


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
