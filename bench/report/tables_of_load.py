"""Load, costs, messages and calibration as Markdown tables. Pure: rows in, text out; no rows, no text."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bench.report.captions import Rows, machine, runs, shared_cores, table, unequal


def load(rows: Rows) -> str:
    """Many requests at once."""
    if not rows:
        return ""
    head = [
        "target",
        "at once",
        "lengths",
        "plain, tokens/s",
        "Outrider, tokens/s",
        "ratio",
        "ideal",
        "η",
    ]
    head += ["first token p50 / p99, ms (plain)", "a token p50 / p99, ms (plain)"]
    head += ["tokens per pass", "continuous batching, tokens/s", "over it"]
    ordered = sorted(
        rows,
        key=lambda row: (row["layers"], row["temperature"], row["lengths"], row["concurrency"]),
    )
    lines = [
        [
            row["target"],
            str(row["concurrency"]),
            row["lengths"],
            f"{row['plain']['tokens_per_s']:.0f}",
            f"{row['speculative']['tokens_per_s']:.0f}",
            f"**{row['speed_up']:.2f}** ± {row['spread'] * row['speed_up']:.2f}",
            f"{row['ideal']:.2f}",
            f"{row['eta']:.2f}",
            _latency(row, "first_token"),
            _latency(row, "token"),
            f"{row['speculative']['tokens_per_pass']:.2f}",
            f"{row['transformers']['tokens_per_s']:.0f}" if "over_transformers" in row else "-",
            f"{row['over_transformers']:.2f}" if "over_transformers" in row else "-",
        ]
        for row in ordered
    ]
    first = ordered[0]
    reasons = sorted(
        {
            row["transformers"]["unavailable"]
            for row in ordered
            if "unavailable" in row["transformers"]
        }
    )
    notes = [f"transformers' continuous batching did not run: {reason}." for reason in reasons]
    caption = (
        f"A closed loop of so many requests, {first['max_tokens']} tokens each, or from a third to five thirds of that where lengths are mixed, "
        f"{runs(rows)}; ratio ± half the distance between the least and the greatest of the runs; {machine(rows)}.{shared_cores(rows)} {unequal(ordered)}"
    )
    return "\n\n".join([table(head, lines), caption, *notes])


def _latency(row: dict[str, Any], what: str) -> str:
    def pair(way: str) -> str:
        found = row[way]
        return f"{1e3 * found[f'{what}_p50_s']:.0f} / {1e3 * found[f'{what}_p99_s']:.0f}"

    return f"{pair('speculative')} ({pair('plain')})"


def costs(rows: Rows) -> str:
    """Processor time, bytes and memory beside the models."""
    if not rows:
        return ""
    ordered = sorted(rows, key=lambda row: (row["concurrency"], row["enabled"]))
    names = sorted(
        {name for row in ordered for name, ms in row["outside_ms_per_round"].items() if ms >= 0.005}
    )
    head = ["", *(_way(row) for row in ordered)]
    lines = [
        [
            f"{name}, ms a round",
            *(f"{row['outside_ms_per_round'].get(name, 0.0):.3f}" for row in ordered),
        ]
        for name in names
    ]
    lines.append(
        [
            "**all of it, ms a round**",
            *(f"**{sum(row['outside_ms_per_round'].values()):.2f}**" for row in ordered),
        ]
    )
    for title, key in (
        ("fresh memory, KiB a round", "fresh_kib_per_round"),
        ("garbage collections in 1000 rounds", "collections_per_1000_rounds"),
        ("Python objects kept, a round", "objects_kept_per_round"),
    ):
        for name in sorted(ordered[0][key]):
            lines.append([f"{name}: {title}", *(f"{row[key][name]:.1f}" for row in ordered)])
    for title, key in (
        ("candidates and verdicts, bytes a token", "payload_bytes_per_token"),
        ("on the wire, bytes a token", "bytes_per_token"),
        ("tokens a pass", "tokens_per_pass"),
    ):
        lines.append([title, *(f"{row[key]:.1f}" for row in ordered)])
    caption = f"Target {ordered[0]['target']}, {runs(ordered)}; {machine(ordered)}.{shared_cores(ordered)}"
    return f"{table(head, lines)}\n\n{caption}"


def _way(row: dict[str, Any]) -> str:
    return f"{row['concurrency']} at once, {'speculative' if row['enabled'] else 'plain'}"


def messages(rows: Rows) -> str:
    """What a message costs."""
    if not rows:
        return ""
    head = ["message", "sessions in it", "bytes", "make, µs", "read, µs", "make / read, peak bytes"]
    lines = [
        [
            row["message"],
            str(row["sessions"]),
            str(row["bytes"]),
            f"{row['make_us']:.1f}",
            f"{row['read_us']:.1f}" if "read_us" in row else "-",
            f"{row['make_peak_bytes']} / {row.get('read_peak_bytes', '-')}",
        ]
        for row in rows
    ]
    return f"{table(head, lines)}\n\n{machine(rows)}."


def applied(rows: Rows) -> str:
    """A service under clients that decode plainly and by speculation by turns, while and after each change of it."""
    if not rows:
        return ""
    (row,) = rows
    after = {each["name"]: each for each in row["windows"]}
    lines = []
    for each in row["windows"]:
        if each["name"].startswith("after: "):
            continue
        later = after.get(f"after: {each['name']}")
        lines.append(
            [
                each["name"],
                f"{each['took_s']:.0f}" if later else "",
                f"{mean(each['plain']):.0f}",
                f"{mean(each['speculative']):.0f}",
                f"{each['ratio']:.2f}",
                f"{mean(later['speculative']):.0f}" if later else "",
                f"{later['ratio']:.2f}" if later else "",
            ]
        )
    head = ["while", "took, s", "plain, tokens/s", "speculative", "ratio"]
    head += ["speculative, after", "ratio, after"]
    passes, drafts = (way.replace("+", " and ") for way in row["profile"].split(":"))
    caption = (
        f"{row['requests']:,} requests of {row['max_tokens']} tokens by {row['clients']} clients, {len(row['failed'])} failed, {row['different']} with "
        f"another text than before. Target passes of {passes} a row, draft passes of {drafts}; means of slices of {row['slice_s']:g} s; {machine(rows)}."
        f"{shared_cores(rows)}"
    )
    return "\n\n".join([table([*head], lines), caption])


def feedback(rows: Rows) -> str:
    """What features cost a target."""
    if not rows:
        return ""
    head = ["asked for", "sessions", "bytes a token", "pass without, ms", "with, ms", "packing, ms"]
    lines = [
        [
            row["asked"],
            str(row["sessions"]),
            f"{row['bytes_per_token']:.0f}",
            *(f"{1e-3 * row[name]:.2f}" for name in ("pass_us", "pass_told_us", "pack_us")),
        ]
        for row in rows
    ]
    one = rows[0]
    said = (
        f"The shipped target ({one['width']} numbers a state); prompts of {one['prompt']} tokens, {one['tokens']} decoded of each, about five a "
        "pass over sixteen candidates. Bytes are those of prompt and text together, by token of the text. Times are processor time, medians of "
        f"passes; {runs(rows)}; {machine(rows)}."
    )
    return f"{table(head, lines)}\n\n{said}"


def reliability(rows: Rows) -> str:
    """How far expectation and fate agree."""
    if not rows:
        return ""
    head = ["drafter", "candidates", "error of what it states", "error of what is expected"]
    lines = [
        [
            row["drafter"],
            str(row["candidates"]),
            f"{row['stated_error']:.3f}",
            f"{row['expected_error']:.3f}",
        ]
        for row in rows
    ]
    return f"{table(head, lines)}\n\nMean distance from the diagonal; {machine(rows)}."
