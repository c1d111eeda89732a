"""One stream and delays as Markdown tables. Pure: rows in, text out; no rows, no text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.report.captions import Rows, machine, runs, said_of, shared_cores, table, unequal


def summary(rows: Rows) -> str:
    """One stream against its baselines, for the README: what a newcomer wants to know."""
    if not rows:
        return ""
    head = ["a target pass, ms", "temperature", "plain, tokens/s", "Outrider, tokens/s"]
    head += ["speed-up", "over transformers' plain / assisted `generate`", "processor"]
    lines = []
    for row in rows:
        theirs = row["transformers"]["one"]
        lines.append(
            [
                f"{row['unit_ms']:.0f}",
                f"{row['temperature']:g}",
                f"{row['plain_tokens_per_s']:.0f}",
                f"{row['tokens_per_s']:.0f}",
                f"**{row['speed_up']:.2f}**",
                f"{theirs['plain']['ours_over']:.2f} / {theirs['assisted']['ours_over']:.2f}",
                row["machine"]["cpu"],
            ]
        )
    caption = f"One stream of prompts of every category; medians; one thread for each model. {unequal(rows)}"
    return f"{table(head, lines)}\n\n{caption}"


def single(rows: Rows) -> str:
    """One stream against its baselines."""
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
        f"One stream, prompts of every category, {runs(rows)}; {machine(rows)}.{shared_cores(rows)} {unequal(rows)} "
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
    """Equal outputs: a line for each drafter and condition, figures by temperature."""
    if not rows:
        return ""
    temperatures = sorted({row["temperature"] for row in rows})
    head = ["drafter", "disturbed", "tokens compared", "outputs that differ", "near ties met"]
    head += ["tokens a pass", "candidates accepted", "restarts: drafters, target"]
    head += ["cuts", "resyncs"]
    by_line: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in rows:
        found = by_line.setdefault((row["drafter"], row["condition"]), {})
        found[row["temperature"]] = row

    def line(drafter: str, condition: str, found: dict[float, dict[str, Any]]) -> list[str]:
        def each(tell: Callable[[dict[str, Any]], object]) -> str:
            return " / ".join(str(tell(found[t])) if t in found else "-" for t in temperatures)

        is_disturbed = condition == "disturbed"
        happened = ["-"] * 3
        if is_disturbed:
            happened = [
                each(lambda row: f"{row['restarts']}, {row['target_restarts']}"),
                each(lambda row: row["cuts"]),
                each(lambda row: row["resyncs"]),
            ]
        return [
            drafter,
            "yes" if is_disturbed else "no",
            each(lambda row: row["tokens"]),
            f"**{each(lambda row: len(row['different']))}**",
            each(lambda row: row["near_ties_speculative"]),
            each(lambda row: f"{row['tokens_per_pass']:.2f}"),
            each(lambda row: row["accepted"]),
            *happened,
        ]

    keys = sorted(by_line, key=lambda key: (key[0], key[1] == "disturbed"))
    lines = [line(*key, by_line[key]) for key in keys]
    # Rows of a run of hours: which is of which commit is in the file.
    commits = ", ".join(sorted({row["machine"]["commit"] for row in rows}))
    told = [{**row, "machine": {**row["machine"], "commit": commits}} for row in rows]
    first = rows[0]
    total = sum(row["tokens"] for row in rows)
    caption = (
        f"{first['prompts']} prompts of every category, {first['max_tokens']} tokens a sequence, some prompts again until enough has "
        f"happened; figures at temperatures {' / '.join(f'{t:g}' for t in temperatures)}; {total:,} tokens in all. {unequal(rows)} "
        f"{machine(told)}.{shared_cores(rows)}"
    )
    no_proof = [reason for row in rows for reason in row.get("no_proof", ())]
    if no_proof:
        caption += f" **No proof**: {'; '.join(no_proof)}."
    return f"{table(head, lines)}\n\n{caption}"


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
        f"{first['prompts']} prompts, {runs(rows)}; speed-ups over plain decoding, prompts left out; {machine(rows)}.{shared_cores(rows)} "
        f"{unequal(ordered)}"
    )
    return f"{table(head, lines)}\n\n{caption}"


def _target(row: dict[str, Any]) -> str:
    return str(row["target"])


def _share(part: int, rest: int) -> str:
    return f"{100 * part / max(part + rest, 1):.0f} %"


def precision(rows: Rows) -> str:
    """How often texts differ, by the type of the weights."""
    if not rows:
        return ""
    head = ["weights", "temperature", "texts", "tokens each"]
    head += ["speculative differs from plain", "plain beside three others differs from plain alone"]
    head += ["near ties in 1,000 draws"]
    lines = [
        [
            row["dtype"],
            f"{row['temperature']:g}",
            str(row["prompts"]),
            str(row["max_tokens"]),
            f"**{len(row['different'])}**",
            f"{len(row['different_beside'])}",
            f"{1000 * row['near_ties'] / row['tokens']:.2f}",
        ]
        for row in rows
    ]
    return f"{table(head, lines)}\n\nThe shipped pair; {machine(rows)}."
