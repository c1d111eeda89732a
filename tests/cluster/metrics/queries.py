"""What a PromQL expression asks for: names of samples, and the labels that it selects, groups or joins by.

No parser of the language; enough for the expressions that are shipped, and loud about what it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"(?:outrider[:_]|process_)[a-zA-Z0-9_:]+")
SELECTOR = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{(?P<labels>[^}]*)\}")
MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"[^"]*"\s*(?:,|$)')
GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
WORDS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
KNOWN = {
    *("sum", "rate", "increase", "avg_over_time", "histogram_quantile", "absent", "label_values"),
    *("by", "ignoring", "group_left"),
}
"""Functions and keywords that expressions may use."""

OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that it adds, or that belong to every histogram."""


@dataclass(frozen=True)
class Query:
    """What an expression asks for."""

    names: frozenset[str]
    selected: frozenset[tuple[str, str]]
    """Name of a sample and of a label that a selector of it states."""
    grouped: frozenset[str]
    """Labels of groups and joins."""


def read(expression: str) -> Query:
    """What an expression asks for.

    Raises:
        ValueError: It holds something that is not understood, or its brackets do not match.
    """
    for opening, closing in ("()", "{}", "[]"):
        if expression.count(opening) != expression.count(closing):
            raise ValueError(f"{opening}{closing} do not match in {expression!r}")
    selected: set[tuple[str, str]] = set()
    for selector in SELECTOR.finditer(expression):
        labels = selector["labels"]
        if labels and MATCHER.sub("", labels):
            raise ValueError(f"not understood: {labels!r} in {expression!r}")
        selected |= {(selector["name"], label) for label, _ in MATCHER.findall(labels)}
    grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")}
    bare = GROUPED.sub(" by ", re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", expression))
    unknown = {
        word for word in WORDS.findall(bare) if not NAME.fullmatch(word) and word not in KNOWN
    }
    if unknown:
        raise ValueError(f"not understood: {sorted(unknown)} in {expression!r}")
    names = frozenset(NAME.findall(bare))
    return Query(names, frozenset(selected), frozenset(grouped))
