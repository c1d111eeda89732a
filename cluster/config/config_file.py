"""Reads a configuration file into plain values; refuses what YAML would swallow silently."""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from outrider.cluster.config.config_errors import ConfigError, ConfigProblem

MAX_BYTES = 1 << 20
"""Largest file that is read, in bytes: a real configuration has a few kB, and a wrong path may be a model's weights."""


MAX_VALUES = 100_000
"""Most values of a file, those of aliases counted wherever they stand: some lines of YAML can stand for more than a memory holds."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that occurs twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} occurs twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's content. An empty file is an empty configuration.

    Raises:
        ConfigError: It cannot be read, is too large or malformed, or holds something other than a mapping.
    """
    text = _read_text(path)
    try:
        if path.suffix == ".json":
            data = json.loads(text, object_pairs_hook=_strict_object)
        else:
            data = yaml.load(text, _StrictLoader)
        _check_size(data)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(str(path), (ConfigProblem(where, error.problem or str(error)),)) from None
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(str(path), (ConfigProblem("", f"not valid: {error}"),)) from None
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
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return found


def _check_size(data: Any) -> None:
    """Raises ValueError: the content has too many values, or holds itself."""
    left, waiting = MAX_VALUES, [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        left -= 1
        if left < 0:
            raise ValueError(f"more than {MAX_VALUES:,} values; or one that holds itself")


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
