"""Writes the README's tables from the result files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.results import read

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def write() -> None:
    """Replaces what stands between the markers."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{after}", encoding="utf-8")


def tables() -> str:
    """Every table, as Markdown."""
    parts = [single(read("single")), equality(read("equality"))]
    return "\n\n".join(part for part in parts if part)


def single(rows: list[dict[str, Any]]) -> str:
    """One stream against its baselines."""
    if not rows:
        return ""
    head = (
        "| target | temperature | plain, tokens/s | Outrider, tokens/s | speed-up | tokens per pass "
        "| transformers `generate` | same, assisted | over transformers plain / assisted |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    lines = []
    for row in rows:
        ours, other = row["tokens_per_s"], row["transformers"]
        lines.append(
            f"| {row['target']} ({row['plain_pass_ms']:.1f} ms a pass) | {row['temperature']:g} "
            f"| {row['plain_tokens_per_s']:.0f} | {ours:.0f} | **{row['speed_up']:.2f}** "
            f"| {row['tokens_per_pass']:.2f} | {other['plain']:.0f} | {other['assisted']:.0f} "
            f"| {ours / other['plain']:.2f} / {ours / other['assisted']:.2f} |"
        )
    first = rows[0]
    costs = [
        f"{row['target']}, temperature {row['temperature']:g}: {row['bytes_per_token']:.0f} bytes of candidates and "
        "verdicts for each committed token; processor milliseconds outside the models for each round: "
        + ", ".join(f"{k} {v:.2f}" for k, v in row["cpu_outside_ms_per_round"].items())
        for row in rows
    ]
    caption = (
        f"One stream, {first['prompts']} prompts of every category, {first['max_tokens']} tokens each, median of "
        f"{first['runs']} runs by turns; {_machine(first)}."
    )
    return "\n".join([head, *lines, "", caption, "", *(f"- {cost}." for cost in costs)])


def equality(rows: list[dict[str, Any]]) -> str:
    """Equal outputs."""
    if not rows:
        return ""
    head = (
        "| temperature | prompts | tokens | outputs that differ from plain decoding | near ties met | tokens per pass |\n"
        "|---|---|---|---|---|---|"
    )
    lines = [
        f"| {row['temperature']:g} | {row['prompts']} | {row['tokens']} | {len(row['different'])} "
        f"| {row['near_ties_speculative']} | {row['tokens_per_pass']:.2f} |"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _machine(row: dict[str, Any]) -> str:
    machine = row["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, transformers "
        f"{machine['transformers']}, Ray {machine['ray']}, commit {machine['commit']}, {row['date']}"
    )
