"""Markdown tables, and what is said under them: where and how often rows were measured, whether outputs were equal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Rows = Sequence[dict[str, Any]]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    written = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in written)


def machine(rows: Rows) -> str:
    """What rows were measured on, and when; of rows that differ in that, which was measured where."""
    return said_of(rows, _machine)


def shared_cores(rows: Rows) -> str:
    """A sentence on what the machine's cores shared while rows were measured; empty if none of them tells."""
    told = [row["machine"]["two_at_once"] for row in rows if "two_at_once" in row["machine"]]
    if not told:
        return ""
    least, greatest = f"{min(told):.2f}", f"{max(told):.2f}"
    between = greatest if least == greatest else f"{least} to {greatest}"
    which = "" if len(told) == len(rows) else f", as far as rows tell ({len(told)} of {len(rows)})"
    return f" Work on two of its cores at once took {between} times as long as on one alone{which}."


def _machine(row: dict[str, Any]) -> str:
    about = row["machine"]
    return (
        f"{about['cpu']}, {about['cores']} cores, torch {about['torch']}, transformers "
        f"{about['transformers']}, Ray {about['ray']}, commit {about['commit']}, {row['date']}"
    )


def runs(rows: Rows) -> str:
    """How often rows were measured."""
    return said_of(rows, _runs)


def _runs(row: dict[str, Any]) -> str:
    return f"median of {row['runs']} runs by turns" if row["runs"] > 1 else "one run"


def said_of(rows: Rows, say: Callable[[dict[str, Any]], str]) -> str:
    """What holds of rows: once if it is the same of all, else of which rows what holds."""
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(say(row), []).append(_name(row))
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{text} ({', '.join(dict.fromkeys(names))})" for text, names in said.items())


def _name(row: dict[str, Any]) -> str:
    """What tells a row of a table from its others."""
    keys = ("part", "concurrency", "delay_ms", "method", "temperature")
    found = [
        f"{key.removesuffix('_ms')} {row[key]:g}"
        if isinstance(row[key], float)
        else f"{key.removesuffix('_ms')} {row[key]}"
        for key in keys
        if key in row
    ]
    return " at ".join(found) or "the others"


def unequal(rows: Rows) -> str:
    """A sentence on equal outputs, for under a table."""
    different = sum(_count(row["different"]) for row in rows)
    if not different:
        return "Every output was that of plain decoding, token for token."
    return f"**{different} outputs differ from plain decoding** (near ties, or a fault: see the result file)."


def _count(different: Any) -> int:
    if isinstance(different, dict):
        return sum(len(found) for found in different.values())
    return len(different)
