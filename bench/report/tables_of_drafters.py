"""Tables of what each drafter does, from the rows of the suites `drafters` and `sorted`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.report.captions import Rows, machine, shared_cores, table

DEPTHS = 4
"""Depths of which acceptance is told."""


def drafters(rows: Rows) -> str:
    """What each drafter does over all categories, a table for each number of sequences and temperature."""
    head = ["drafter", *(f"depth {depth + 1}" for depth in range(DEPTHS)), "tokens a pass"]
    head += [
        "candidates a pass",
        "rows drafted a token",
        "CPU, us a token",
        "served: tokens a pass",
        "bytes a token",
    ]
    head += ["speed-up"]
    return _told(rows, lambda some: table(head, [_line(way, some) for way in _ways(some)]))


def exits(rows: Rows) -> str:
    """What one draft model with exits does for targets of several sizes: a line for each target and temperature."""
    if not rows:
        return ""
    ways = list(rows[0]["ways"])
    head = ["target", "temperature", "plain, tokens/s", *ways, "three targets at once"]
    lines = []
    for row in rows:
        cells = [
            f"{row['ways'][way]['tokens_per_pass']:.2f}, x {row['ways'][way]['speed_up']:.2f}"
            for way in ways
        ]
        both = row["together"]
        together = both["drafted"]["tokens_per_s"] / both["plain"]["tokens_per_s"]
        lines.append(
            [
                row["target"],
                f"{row['temperature']:g}",
                f"{row['plain_tokens_per_s']:.0f}",
                *cells,
                f"x {together:.2f}",
            ]
        )
    different = sum(
        row["together"]["different"] + sum(one["different"] for one in row["ways"].values())
        for row in rows
    )
    equal = (
        f"{different} outputs differ from plain decoding."
        if different
        else "Every output was that of plain decoding, token for token."
    )
    first = rows[0]
    return (
        f"{table(head, lines)}\n\nTokens a target pass, and speed-up over plain decoding by the same target in the same service; "
        f"{first['prompts']} prompts, one of each category, {first['max_tokens']} tokens each. At once: one stream at each target, against plain "
        f"decoding at once. {machine(rows)}.{shared_cores(rows)} {equal}"
    )


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

    return _told([row for row in rows if "led" in next(iter(row["ways"].values()))], told)


def speed_up_by_category(rows: Rows) -> str:
    """Speed-up of the served drafters by category."""

    def told(some: Rows) -> str:
        ways = [way for way, one in some[0]["ways"].items() if "served" in one]
        lines = [
            [row["category"], *(_served([row["ways"][way]["served"]])[-1] for way in ways)]
            for row in some
        ]
        return table(["category", *ways], lines)

    return _told([row for row in rows if "served" in next(iter(row["ways"].values()))], told)


def blocks(rows: Rows) -> str:
    """What a model takes for a block, by the length of the block."""
    if not rows:
        return ""
    head = ["tokens of a block", "diffusion, one step, ms", "autoregressive, ms"]
    some = sorted(rows, key=lambda row: int(row["block"]))
    lines = [
        [str(row["block"]), f"{row['diffusion_ms']:.2f}", f"{row['autoregressive_ms']:.2f}"]
        for row in some
    ]
    said = f"Processor time of the models on one thread, medians of {some[0]['runs']} rounds by turns. {machine(some)}."
    return table(head, lines) + "\n\n" + said


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
    return list(dict.fromkeys(way for row in rows for way, told in row["ways"].items() if told))


def _line(way: str, rows: Rows) -> list[str]:
    found = [row["ways"].get(way, {}) for row in rows]
    led, served = ([one[look] for one in found if look in one] for look in ("led", "served"))
    return [way, *_led(led), *_served(served)]


def _served(found: Rows) -> list[str]:
    if not found:
        return ["-"] * 3
    tokens = sum(one["tokens"] for one in found)
    return [
        f"{tokens / sum(one['passes'] for one in found):.2f}",
        f"{sum(one['wire_bytes'] for one in found) / tokens:.0f}",
        f"{sum(one['plain_s'] for one in found) / sum(one['seconds'] for one in found):.2f}",
    ]


def _led(led: Rows) -> list[str]:
    if not led:
        return ["-"] * (DEPTHS + 4)
    tokens, passes = (sum(one[key] for one in led) for key in ("num_tokens", "num_passes"))
    return [
        *(_acceptance(led, depth) for depth in range(DEPTHS)),
        f"**{_tokens(led)}**",
        f"{sum(one['num_nodes'] for one in led) / passes:.1f}",
        _drafted(led, tokens),
        f"{1e6 * sum(one['cpu_s'] for one in led) / tokens:.0f}",
    ]


def _drafted(led: Rows, tokens: int) -> str:
    """Rows that the model computed for a token; of old rows that is not known."""
    if any("num_drafted" not in one for one in led):
        return "-"
    return f"{sum(one['num_drafted'] for one in led) / tokens:.1f}"


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
        "sequence. Columns up to CPU are of the drafter alone, led along the texts: passes that accepted a candidate so deep, rows that its model computed, and processor time with "
        f"its model. {machine(rows)}.{shared_cores(rows)} {equal if served else 'Not served yet.'}"
    )
