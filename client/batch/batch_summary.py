"""What a batch amounts to, counted from the lines of its output. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from outrider.client.batch.answer import Answer
from outrider.client.measuring.figures import total_stats
from outrider.client.messages.results import SpeculationStats

NO_CATEGORY = "(none)"
"""Where records are counted that name no category."""


@dataclass(slots=True, kw_only=True)
class BatchTally:
    """Counts over some records."""

    ok: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    errors: dict[str, int] = field(default_factory=dict)
    """Failed records by the code of their error."""

    def add(self, answer: Answer) -> None:
        """Counts one more."""
        if answer.error_code is not None:
            self.failed += 1
            self.errors[answer.error_code] = self.errors.get(answer.error_code, 0) + 1
            return
        self.ok += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        self.stats = total_stats([self.stats, answer.stats])

    @property
    def acceptance(self) -> float | None:
        """Accepted candidates as a fraction of those verified; None if none was."""
        return self.stats.accepted / self.stats.verified if self.stats.verified else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Mean tokens of a target pass, plain passes included; None if there was none."""
        passes = self.stats.rounds + self.stats.plain_passes
        return self.stats.mean_tokens_per_pass if passes else None

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "ok": self.ok,
            "failed": self.failed,
            "errors": self.errors,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "acceptance": self.acceptance,
            "tokens_per_pass": self.tokens_per_pass,
            "near_ties": self.stats.near_ties,
        }


@dataclass(slots=True, kw_only=True)
class BatchSummary:
    """All of a batch, and each category."""

    total: BatchTally = field(default_factory=BatchTally)
    by_category: dict[str, BatchTally] = field(default_factory=dict)


def summarise(answers: Iterable[Answer]) -> BatchSummary:
    """Counts the answers of a batch."""
    summary = BatchSummary()
    for answer in answers:
        summary.total.add(answer)
        summary.by_category.setdefault(answer.category or NO_CATEGORY, BatchTally()).add(answer)
    summary.by_category = dict(sorted(summary.by_category.items()))
    return summary
