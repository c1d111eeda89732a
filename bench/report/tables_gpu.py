"""Passes and the service on a real GPU, from the rows of `bench gpu` and `bench gpu-served`. Pure."""

from __future__ import annotations

from bench.report.captions import Rows, table


def passes(rows: Rows) -> str:
    """Milliseconds of passes with and without graphs, beside what the memory allows."""
    timed = [row for row in rows if row["what"] == "pass"]
    if not timed:
        return ""
    copy = next(row["gb_per_s"] for row in rows if row["what"] == "copy")
    plain = {_size(row): row for row in timed if not row["graphs"]}
    lines = [
        [
            row["shape"],
            str(row["sessions"]),
            str(row["nodes"]),
            f"{plain[_size(row)]['wall_ms']:.1f}",
            f"{row['wall_ms']:.1f}",
            f"{row['floor_ms']:.1f}",
            f"{row['to_floor']:.2f}",
            f"{row['to_one_token']:.2f}",
        ]
        for row in timed
        if row["graphs"]
    ]
    head = "model|sessions|candidates of each|told kernel by kernel, ms|replayed, ms|floor, ms|x floor|x one token"
    first = timed[0]
    return (
        f"{table(head.split('|'), lines)}\n\nRandom weights in {first['dtype']}, {first['context']:,} cached tokens of each session, medians of "
        f"{first['num_runs']}. Floor: every weight and cached row read once at the {copy / 1e3:.1f} TB/s, read and written, of a copy. {_on(first)}."
    )


def _size(row: dict[str, object]) -> tuple[object, ...]:
    return row["shape"], row["sessions"], row["nodes"]


def served(rows: Rows) -> str:
    """Tokens a second of the whole service with both models on one GPU."""
    if not rows:
        return ""
    lines = [
        [
            str(row["level"]),
            "side by side (MPS)" if row["mps"] else "in turns",
            f"{row['plain']['tokens_per_s']:,.0f}",
            f"{row['plain']['units']:.2f}",
            f"{row['speculative']['tokens_per_s']:,.0f}",
            f"{row['speculative']['tokens_per_round']:.2f}",
            f"x {row['speed_up']:.2f}",
            f"{row['different']} / {row['different_plain']}",
        ]
        for row in rows
    ]
    head = (
        "requests at once|processes on the GPU|plain, tokens/s|of what the device alone does|speculative, tokens/s|tokens a pass|"
        "speed-up|texts that differ from plain: speculative / plain again"
    )
    first = rows[0]
    return (
        f"{table(head.split('|'), lines)}\n\nA target of {first['parameters'] / 1e9:.1f} B parameters and its first two layers as the drafter, "
        f"{first['dtype']}, random weights (`bench/gpu/served_pair.py`), temperature {first['temperature']:g}, {first['max_tokens']} tokens a request. {_on(first)}."
    )


def _on(row: dict[str, object]) -> str:
    return (
        f"{row['device']}, torch {row['torch']}, transformers {row['transformers']}, commit {row['commit']}, "
        f"{row['date']}"
    )
