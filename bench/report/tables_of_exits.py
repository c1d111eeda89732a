"""What one draft model with exits does for targets of several sizes, from the rows of the suite `sorted`. Pure."""

from __future__ import annotations

from bench.report.captions import Rows, machine, shared_cores, table


def exits(rows: Rows) -> str:
    """Tokens a pass and speed-up of each way, a line for each target and temperature."""
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
