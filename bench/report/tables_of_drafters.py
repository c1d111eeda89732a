"""Tables of what each drafter does, from the rows of the suite `drafters`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.report.captions import Rows, machine, shared_cores, table

DEPTHS = 4
"""Depths of which acceptance is told."""


def drafters(rows: Rows) -> str:
    """What each drafter does over all categories, a table for each number of sequences and temperature."""
    head = ["drafter", *(f"depth {depth + 1}" for depth in range(DEPTHS)), "tokens a pass"]
    head += ["candidates a pass", "CPU, us a token", "served: tokens a pass", "bytes a token"]
    head += ["speed-up"]
    return _told(rows, lambda some: table(head, [_line(way, some) for way in _ways(some)]))


def drafters_by_category(rows: Rows) -> str:
    """Tokens a pass of the led drafters by category."""

    def told(some: Rows) -> str:
        ways = {
            way + name.removeprefix("led").replace("_", ", "): (way, name)
            for way, one in some[0]["ways"].items()
            for name in ("led", "led_together")
            if name in one
        }
        lines = [
            [row["category"], *(_tokens([row["ways"][way][name]]) for way, name in ways.values())]
            for row in some
        ]
        return table(["category", *ways], lines)

    return _told(rows, told)


def _told(rows: Rows, tell: Callable[[Rows], str]) -> str:
    """Told of each number of sequences and temperature by itself; empty if there are no rows."""
    if not rows:
        return ""
    settings = sorted({_setting(row) for row in rows})
    parts = [
        f"n = {setting[0]} ({setting[3]} at a time), temperature {setting[1]:g}, target {setting[2]}:\n\n"
        + tell([row for row in rows if _setting(row) == setting])
        for setting in settings
    ]
    return "\n\n".join([*parts, _caption(rows)])


def _setting(row: dict[str, Any]) -> tuple[int, float, str, int]:
    return row["num_sequences"], row["temperature"], row["target"], row["at_once"]


def _ways(rows: Rows) -> list[str]:
    """Those of which something is known."""
    return [way for way, told in rows[0]["ways"].items() if told]


def _line(way: str, rows: Rows) -> list[str]:
    found = [row["ways"][way] for row in rows]
    return [way, *_led(found), *_served([one["served"] for one in found if "served" in one])]


def _served(found: Rows) -> list[str]:
    if not found:
        return ["-"] * 3
    tokens = sum(one["tokens"] for one in found)
    return [
        f"{tokens / sum(one['passes'] for one in found):.2f}",
        f"{sum(one['wire_bytes'] for one in found) / tokens:.0f}",
        f"{sum(one['plain_s'] for one in found) / sum(one['seconds'] for one in found):.2f}",
    ]


def _led(found: Rows) -> list[str]:
    if "led" not in found[0]:
        return ["-"] * (DEPTHS + 3)
    led = [one["led"] for one in found]
    tokens, passes = (sum(one[key] for one in led) for key in ("num_tokens", "num_passes"))
    return [
        *(_acceptance(led, depth) for depth in range(DEPTHS)),
        f"**{_tokens(led)}**",
        f"{sum(one['num_nodes'] for one in led) / passes:.1f}",
        f"{1e6 * sum(one['cpu_s'] for one in led) / tokens:.0f}",
    ]


def _tokens(led: Rows) -> str:
    return f"{sum(one['num_tokens'] for one in led) / sum(one['num_passes'] for one in led):.2f}"


def _acceptance(led: Rows, depth: int) -> str:
    """Of all passes those in which a candidate at this depth was accepted."""
    accepted = sum(one["accepted"][depth] for one in led if len(one["accepted"]) > depth)
    return f"{accepted / sum(one['num_passes'] for one in led):.0%}"


def _caption(rows: Rows) -> str:
    served = [way["served"] for row in rows for way in row["ways"].values() if "served" in way]
    different = sum(one["different"] for one in served)
    equal = (
        f"{different} outputs differ from plain decoding."
        if different
        else "Every output was that of plain decoding, token for token."
    )
    first = rows[0]
    return (
        f"At most {first['max_nodes']} candidates in a pass; {first['prompts']} prompts of each category, {first['max_tokens']} tokens of each "
        "sequence. Columns up to CPU are of the drafter alone, led along the texts: passes that accepted a candidate so deep, and processor time with "
        f"its model. {machine(rows)}.{shared_cores(rows)} {equal if served else 'Not served yet.'}"
    )
