"""Result rows as Markdown tables. Pure: rows in, text out; no rows, no text."""

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


def single(rows: Rows) -> str:
    """One stream against its baselines, for the README."""
    if not rows:
        return ""
    head = [
        "target",
        "temperature",
        "plain, tokens/s",
        "Outrider, tokens/s",
        "speed-up",
        "ideal",
        "η",
        "tokens per pass",
        "over `generate` plain / assisted / prompt lookup",
        "same, all threads",
    ]
    lines = [
        [
            f"{row['target']} ({row['unit_ms']:.1f} ms a pass)",
            f"{row['temperature']:g}",
            f"{row['plain_tokens_per_s']:.0f}",
            f"{row['tokens_per_s']:.0f}",
            f"**{row['speed_up']:.2f}**",
            f"{row['ideal']:.2f}",
            f"{row['eta']:.2f}",
            f"{row['tokens_per_pass']:.2f}",
            _over(row, "one"),
            _over(row, "all"),
        ]
        for row in rows
    ]
    caption = (
        f"One stream, prompts of every category, {runs(rows)}; {machine(rows)}. {unequal(rows)} "
        "`generate` has the target's one thread, or as many as target and drafter together."
    )
    return f"{table(head, lines)}\n\n{caption}"


def _over(row: dict[str, Any], threads: str) -> str:
    found = row["transformers"][threads]
    return " / ".join(
        f"{found[mode]['ours_over']:.2f}" for mode in ("plain", "assisted", "prompt_lookup")
    )


def single_details(rows: Rows) -> str:
    """One stream: what the ideal is made of, and what lies outside the models."""
    if not rows:
        return ""
    head = ["target", "temperature", "c", "κ (nodes)", "mean run", "drafter's bound"]
    head += ["target's bound", "decoding speed-up", "η", "rounds with candidates", "target busy"]
    lines = [
        [
            row["target"],
            f"{row['temperature']:g}",
            f"{row['draft_cost']:.3f}",
            f"{row['pass_cost']:.2f} ({row['pass_nodes']:.1f})",
            f"{row['mean_run']:.1f}",
            f"{row['drafter_bound']:.2f}",
            f"{row['target_bound']:.2f}",
            f"{row['decode_speed_up']:.2f}",
            f"{row['eta']:.2f}",
            f"{100 * row['hit_rate']:.0f} %",
            f"{100 * row['target_busy']:.0f} %",
        ]
        for row in rows
    ]
    costs = [
        f"- {row['target']}, temperature {row['temperature']:g}: the plain path is "
        f"{row['transformers']['one']['plain']['plain_over']:.2f} times `generate`; "
        f"{row['bytes_per_token']:.0f} bytes of candidates and verdicts a token; milliseconds outside the models a round: "
        + ", ".join(f"{k} {v:.2f}" for k, v in row["cpu_outside_ms_per_round"].items())
        + "."
        for row in rows
    ]
    return "\n".join([table(head, lines), "", *costs])


def equality(rows: Rows) -> str:
    """Equal outputs."""
    if not rows:
        return ""
    head = ["temperature", "prompts", "tokens", "outputs that differ from plain decoding"]
    head += ["near ties met", "tokens per pass"]
    lines = [
        [
            f"{row['temperature']:g}",
            str(row["prompts"]),
            str(row["tokens"]),
            str(len(row["different"])),
            str(row["near_ties_speculative"]),
            f"{row['tokens_per_pass']:.2f}",
        ]
        for row in rows
    ]
    return table(head, lines)


def delay(rows: Rows) -> str:
    """Pipelined against lock-step behind a network that delays."""
    if not rows:
        return ""
    ordered = sorted(rows, key=lambda row: (row["temperature"], row["added_ms"]))
    head = ["added, one way", "temperature", "round trip", "ρ", "plain, tokens/s", "lock-step"]
    head += ["pipelined", "over lock-step", "ideal", "η", "rounds with candidates", "stale"]
    head += ["bytes a token"]
    lines = [
        [
            f"{row['added_ms']:.3g} ms",
            f"{row['temperature']:g}",
            f"{row['round_trip_ms']:.1f} ms",
            f"{row['round_trip']:.2f}",
            f"{row['plain_tokens_per_s']:.0f}",
            f"{row['decode_speed_up']['lockstep']:.2f}",
            f"**{row['decode_speed_up']['pipelined']:.2f}**",
            f"{row['over_lockstep']:.2f}",
            f"{row['ideal']:.2f}",
            f"{row['eta']:.2f}",
            _share(row["rounds"]["pipelined"], row["plain_passes"]["pipelined"]),
            f"{100 * row['stale_share']:.0f} %",
            f"{row['bytes_per_token']:.0f}" if row["bytes_per_token"] else "-",
        ]
        for row in ordered
    ]
    first = ordered[0]
    caption = (
        f"Delay by {first['between']}; target {said_of(ordered, _target)}, one stream, "
        f"{first['prompts']} prompts, {runs(rows)}; speed-ups over plain decoding, prompts left out; {machine(rows)}. "
        f"{unequal(ordered)}"
    )
    return f"{table(head, lines)}\n\n{caption}"


def _target(row: dict[str, Any]) -> str:
    return str(row["target"])


def _share(part: int, rest: int) -> str:
    return f"{100 * part / max(part + rest, 1):.0f} %"


def load(rows: Rows) -> str:
    """Many requests at once."""
    if not rows:
        return ""
    head = ["target", "at once", "plain, tokens/s", "Outrider, tokens/s", "ratio"]
    head += ["first token p50 / p99, ms (plain)", "a token p50 / p99, ms (plain)"]
    head += ["tokens per pass", "continuous batching, tokens/s", "over it"]
    ordered = sorted(rows, key=lambda row: (row["layers"], row["temperature"], row["concurrency"]))
    lines = [
        [
            row["target"],
            str(row["concurrency"]),
            f"{row['plain']['tokens_per_s']:.0f}",
            f"{row['speculative']['tokens_per_s']:.0f}",
            f"**{row['speed_up']:.2f}**",
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
        f"A closed loop of so many requests, {first['max_tokens']} tokens each, {runs(rows)}; {machine(rows)}. "
        f"{unequal(ordered)}"
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
    caption = f"Target {ordered[0]['target']}, {runs(ordered)}; {machine(ordered)}."
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
