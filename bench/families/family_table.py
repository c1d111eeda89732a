"""The page of architectures: what runs, what is refused, and what a checkpoint says that is not heeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from bench.families.family_models import CONTEXT, WINDOW

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
TEXT = Path(__file__).parent / "models.md"
"""What the page says besides the table, and besides the section of `BY_HAND`."""

BY_HAND, TABLE = "## Draft checkpoints of other projects", "## Architectures"
"""Headings of what stands in the page alone, and of what follows it."""

EXACT = 2e-4
"""Greatest difference of logits that is rounding in float32, as a share of their standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one architecture."""

    name: str
    refused: str
    """The reason that loading gives; empty if it runs."""

    difference: float = 0.0
    """Greatest difference from plain logits, as a share of their standard deviation."""

    num_rows: int = 0
    """Rows that were compared."""

    half: str = ""
    """What loading in bfloat16 gives; empty if it runs."""

    @property
    def reason(self) -> str:
        """Why it is refused, without its name."""
        return self.refused.partition(") ")[2] or self.refused

    @property
    def is_exact(self) -> bool:
        """Whether it runs with plain logits."""
        return not self.refused and self.difference <= EXACT


def write(verdicts: Sequence[Verdict]) -> None:
    """Writes docs/models.md."""
    PAGE.write_text(page(verdicts, PAGE.read_text()))


def page(verdicts: Sequence[Verdict], before: str) -> str:
    """The page.

    Args:
        verdicts: The table.
        before: The page as it is, of which the section that is written by hand stays.
    """
    _, heading, section = before.partition(BY_HAND)
    kept = heading + section.partition(TABLE)[0]
    exact = [each for each in verdicts if each.is_exact]
    wrong = [each for each in verdicts if not each.refused and not each.is_exact]
    refused = [each for each in verdicts if each.refused]
    worst = max((each.difference for each in exact), default=0.0)
    parts = TEXT.read_text().format(
        versions=f"transformers {transformers.__version__}, torch {torch.__version__}",
        window=WINDOW,
        context=CONTEXT,
        total=len(verdicts),
        exact=len(exact),
        refused=len(refused),
        wrong=len(wrong),
        rows=sum(each.num_rows for each in verdicts),
        worst=f"{worst:.0e}",
    )
    parts = parts.replace(TABLE, kept + TABLE)
    rows = [f"| {each.name} | {_result(each)} | {each.reason} |" for each in verdicts]
    return "\n".join(
        [parts.rstrip(), "", "| architecture | result | why |", "| --- | --- | --- |", *rows, ""]
    )


def _result(verdict: Verdict) -> str:
    if verdict.refused:
        return "refused" if verdict.half else "**refused, but not in bfloat16**"
    text = "runs" if verdict.is_exact else f"**differs by {verdict.difference:.2g}**"
    return f"{text}; not in bfloat16: {verdict.half}" if verdict.half else text
