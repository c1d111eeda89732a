"""Which settings of two runs differ, for the message that refuses to go on with another run's progress."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

CONTEXT = 2
"""Words before a difference that are shown with it, where it does not name itself."""

LONGEST = 160
"""Characters of a value that are shown, at most."""

TEXTS = r"(?:text|own writing) of .*?, tokens \d+ to \d+;?"
"""Rows of a cache, as `state_fitting` describes them: a path may have blanks."""

WORD = re.compile(rf"{TEXTS}|\[[^\[\]]*\]|\S+")
NAMES_ITSELF = re.compile(rf"{TEXTS}|\w+=\S*")

_DECODER = json.JSONDecoder()


def refusal(path: Path, saved: str, present: str) -> str:
    """Why a run does not go on with what another one has left.

    Args:
        path: Of what is there.
        saved: Fingerprint of the run that left it.
        present: Fingerprint of this one.
    """
    left, own = differing(saved, present)
    return (
        f"{path}: saved by a run with settings {left}, this one has {own}; use the same settings, another output "
        "folder, or train without resume (--afresh)"
    )


def differing(one: str, other: str) -> tuple[str, str]:
    """What two fingerprints do not share, of each: every setting that differs with its whole value, and of other words those before that say what they are.

    Args:
        one: Words, among which JSON objects may stand; their fields are settings.
        other: Likewise.
    """
    (named, words), (others, other_words) = _parsed(one), _parsed(other)
    found: list[tuple[str, str]] = []
    for name in dict.fromkeys((*named, *others)):
        both = _setting(name, named), _setting(name, others)
        if both[0] != both[1]:
            found.append(both)
    blocks = SequenceMatcher(None, words, other_words, autojunk=False).get_opcodes()
    for kind, i, to, j, end in blocks:
        if kind != "equal":
            found.append((_words(words, i, to), _words(other_words, j, end)))
    # They may differ in how a number is written.
    found = found or [(_short(one), _short(other))]
    return ", ".join(left for left, _ in found), ", ".join(right for _, right in found)


def _parsed(text: str) -> tuple[dict[str, Any], list[str]]:
    """The fields of its objects, and the words around them; a list in brackets is a word."""
    named: dict[str, Any] = {}
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "{":
            try:
                value, at = _DECODER.raw_decode(text, at)
                named |= value
                continue
            except ValueError:
                pass
        if (match := WORD.match(text, at)) is None:
            at += 1
            continue
        words.append(match[0])
        at = match.end()
    return named, words


def _setting(name: str, named: Mapping[str, Any]) -> str:
    return f"{name}: {_short(json.dumps(named[name]))}" if name in named else f"no {name}"


def _words(words: Sequence[str], begin: int, end: int) -> str:
    is_named = begin < end and NAMES_ITSELF.fullmatch(words[begin])
    first = begin if is_named else max(0, begin - CONTEXT)
    return " ".join(map(_short, words[first:end]))


def _short(value: str) -> str:
    half = LONGEST // 2
    return value if len(value) <= LONGEST else f"{value[:half]} ... {value[-half:]}"
