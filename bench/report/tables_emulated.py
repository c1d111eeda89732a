"""Services on emulated devices as a Markdown table. Pure: rows in, text out; no rows, no text."""

from __future__ import annotations

from typing import Any

from bench.report.captions import Rows, machine, runs, shared_cores, table

ROLES = ("target", "drafter", "coordinator", "client")
"""In the order that their processor time is told."""


def emulated(rows: Rows) -> str:
    """Throughput in units of the device's own plain decoding, and processor time."""
    if not rows:
        return ""
    head = [
        "target / drafter",
        "drafters",
        "at once",
        "plain",
        "speculative (tokens a round)",
        "ideal",
        "η",
    ]
    head += [f"µs a session-round, speculative: {' / '.join(ROLES)}", "plain"]
    order = ("profile", "law", "drafting", "drafters", "level")
    ordered = sorted(rows, key=lambda row: tuple(row[key] for key in order))
    lines = [
        [
            f"{row['profile']} / {row['draft_profile']}, {row['law']}",
            f"{row['drafters']}, {'always' if row['drafting'] == 'always' else 'as shipped'}",
            str(row["level"]),
            _units(row["plain"]),
            f"**{_units(row['speculative'])}** ({row['speculative']['tokens_per_round']:.1f})",
            f"{row['ideal']:.1f}",
            f"{row['eta']:.2f}",
            _cpu(row["speculative"]),
            _cpu(row["plain"]),
        ]
        for row in ordered
    ]
    first, different = ordered[0], sum(row["different"] for row in ordered)
    busiest = max(row["load_before"] for row in ordered)
    caption = (
        "**Emulated devices**: target and drafter draw from a law, and their passes take what a profile says, asleep "
        "([emulation.md](emulation.md)); what is measured is the service alone. Throughput in units of what the device would decode "
        "plainly (requests / seconds of a pass), ± half the distance between the least and the greatest run; all requests at the same "
        f"time, {first['max_tokens']} tokens each, temperature {first['temperature']:g}; {runs(rows)}; "
        f"{'all texts equal plain ones' if not different else f'{different} texts differ from plain ones'}; "
        f"load of the machine before a row up to {busiest:.1f}; {machine(rows)}.{shared_cores(rows)}"
    )
    return "\n\n".join([table(head, lines), caption])


def verifiers(rows: Rows) -> str:
    """Throughput by verifier, in the same units."""
    if not rows:
        return ""
    head = ["target / drafter", "drafters", "at once", "verifier", "plain"]
    head += ["speculative (tokens a round)", "times plain"]
    head += [f"µs a session-round: {' / '.join(ROLES)}"]
    order = ("profile", "law", "drafting", "level", "verifier")
    ordered = sorted(rows, key=lambda row: tuple(row[key] for key in order))
    lines = [
        [
            f"{row['profile']} / {row['draft_profile']}, {row['law']}",
            "always" if row["drafting"] == "always" else "as shipped",
            str(row["level"]),
            f"`{row['verifier']}`",
            _units(row["plain"]),
            f"**{_units(row['speculative'])}** ({row['speculative']['tokens_per_round']:.1f})",
            f"{row['speed_up']:.2f}",
            _cpu(row["speculative"]),
        ]
        for row in ordered
    ]
    caption = (
        "**Verifiers on emulated devices**, through the whole service; units as in [benchmarks.md](benchmarks.md#emulated-devices), "
        f"each beside plain decoding in the same run; {runs(rows)}; {machine(rows)}.{shared_cores(rows)}"
    )
    return "\n\n".join([table(head, lines), caption])


def _units(way: dict[str, Any]) -> str:
    return f"{way['units']:.2f} ± {way['spread'] * way['units']:.2f}"


def _cpu(way: dict[str, Any]) -> str:
    return " / ".join(f"{way['cpu_us'].get(role, 0.0):,.0f}" for role in ROLES)
