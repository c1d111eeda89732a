"""What a run of many requests amounts to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.client.messages.results import SpeculationStats


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """One measured request, by the client's clock."""

    prompt: int
    """Which prompt, by position."""

    category: str
    seed: int
    token_ids: tuple[int, ...]
    first_token_s: float
    total_s: float
    token_s: float | None
    """Mean seconds a token after the first chunk; None if all came in one."""

    stats: SpeculationStats = field(default_factory=SpeculationStats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What many requests amount to."""

    requests: int
    tokens: int
    wall_s: float
    tokens_per_s: float
    first_token_p50_s: float | None
    first_token_p99_s: float | None
    token_p50_s: float | None
    token_p99_s: float | None
    mean_tokens_per_pass: float
    """Bonus, correction and plain passes included."""

    acceptance: float
    """Accepted candidates as a fraction of those verified."""

    acceptance_by_depth: tuple[float, ...]
    """Of the rounds whose tree reached depth d, the fraction that accepted a candidate there; at index d - 1."""

    rounds: int
    plain_passes: int
    wire_bytes_per_token: float
    near_ties: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two outputs of the same prompt and seed that are not the same."""

    prompt: int
    seed: int
    position: int
    """The first token that differs, from 0."""

    near_tie: bool
    """A draw of either was nearer than 1e-4 to another outcome, so that rounding can explain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Speculative against plain decoding of the same prompts and seeds."""

    pairs: int
    equal: int
    differences: tuple[Difference, ...]
    speed_up: float
    """Tokens a second, speculative over plain."""

    speed_up_by_category: dict[str, float]
    """Of the mean time a request took, by category: plain over speculative."""

    must_equal: bool = True
    """The outputs should be the same, near ties aside; False: they follow one law at best."""

    @property
    def unexplained(self) -> int:
        """Differences that no near tie explains, where there should be none."""
        if not self.must_equal:
            return 0
        return sum(not difference.near_tie for difference in self.differences)


def percentile(values: Iterable[float], fraction: float) -> float | None:
    """The value below which this fraction of the values lies, between the nearest two in proportion; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = fraction * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def total_stats(all_stats: Sequence[SpeculationStats]) -> SpeculationStats:
    """The sum over sequences; the mean tokens a pass weighs each pass alike."""
    passes = [stats.rounds + stats.plain_passes for stats in all_stats]
    committed = sum(
        stats.mean_tokens_per_pass * count for stats, count in zip(all_stats, passes, strict=True)
    )
    return SpeculationStats(
        rounds=sum(stats.rounds for stats in all_stats),
        plain_passes=sum(stats.plain_passes for stats in all_stats),
        proposed=sum(stats.proposed for stats in all_stats),
        verified=sum(stats.verified for stats in all_stats),
        accepted=sum(stats.accepted for stats in all_stats),
        stale=sum(stats.stale for stats in all_stats),
        reached_by_depth=_sum_by_depth([stats.reached_by_depth for stats in all_stats]),
        accepted_by_depth=_sum_by_depth([stats.accepted_by_depth for stats in all_stats]),
        mean_tokens_per_pass=committed / max(1, sum(passes)),
        near_ties=sum(stats.near_ties for stats in all_stats),
        candidate_messages=sum(stats.candidate_messages for stats in all_stats),
        wire_bytes=sum(stats.wire_bytes for stats in all_stats),
    )


def acceptance_by_depth(stats: SpeculationStats) -> tuple[float, ...]:
    """Of the rounds whose tree reached each depth, the fraction that accepted a candidate there."""
    pairs = zip(stats.accepted_by_depth, stats.reached_by_depth, strict=False)
    return tuple(accepted / reached for accepted, reached in pairs if reached)


def figures(samples: Sequence[RequestSample], *, wall_s: float) -> Figures:
    """The figures of a run.

    Args:
        samples: Its requests.
        wall_s: Seconds that all of them took together.
    """
    stats = total_stats([sample.stats for sample in samples])
    tokens = sum(len(sample.token_ids) for sample in samples)
    token_times = [sample.token_s for sample in samples if sample.token_s is not None]
    first_times = [sample.first_token_s for sample in samples]
    return Figures(
        requests=len(samples),
        tokens=tokens,
        wall_s=wall_s,
        tokens_per_s=tokens / wall_s if wall_s > 0 else 0.0,
        first_token_p50_s=percentile(first_times, 0.5),
        first_token_p99_s=percentile(first_times, 0.99),
        token_p50_s=percentile(token_times, 0.5),
        token_p99_s=percentile(token_times, 0.99),
        mean_tokens_per_pass=stats.mean_tokens_per_pass,
        acceptance=stats.accepted / stats.verified if stats.verified else 0.0,
        acceptance_by_depth=acceptance_by_depth(stats),
        rounds=stats.rounds,
        plain_passes=stats.plain_passes,
        wire_bytes_per_token=stats.wire_bytes / tokens if tokens else 0.0,
        near_ties=stats.near_ties,
    )


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first position at which two outputs differ; None if they are the same."""
    for position, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def differences(
    plain: Sequence[RequestSample], speculative: Sequence[RequestSample]
) -> tuple[Difference, ...]:
    """Where outputs of the same prompt and seed differ. Runs of both must be in the same order."""
    found = []
    for one, other in zip(plain, speculative, strict=True):
        if (one.prompt, one.seed) != (other.prompt, other.seed):
            raise ValueError(
                f"prompt {one.prompt} with seed {one.seed} is compared with prompt {other.prompt} with seed {other.seed}"
            )
        position = first_difference(one.token_ids, other.token_ids)
        if position is not None:
            near_tie = one.stats.near_ties > 0 or other.stats.near_ties > 0
            found.append(
                Difference(prompt=one.prompt, seed=one.seed, position=position, near_tie=near_tie)
            )
    return tuple(found)


def compare(
    plain: Sequence[RequestSample],
    speculative: Sequence[RequestSample],
    *,
    plain_wall_s: float,
    speculative_wall_s: float,
    must_equal: bool = True,
) -> Comparison:
    """Speculative against plain decoding. Runs of both must be in the same order."""
    found = differences(plain, speculative)
    categories = dict.fromkeys(sample.category for sample in plain)
    plain_rate = figures(plain, wall_s=plain_wall_s).tokens_per_s
    speculative_rate = figures(speculative, wall_s=speculative_wall_s).tokens_per_s
    return Comparison(
        pairs=len(plain),
        equal=len(plain) - len(found),
        differences=found,
        speed_up=speculative_rate / plain_rate if plain_rate else 0.0,
        speed_up_by_category={
            category: _time_of(plain, category) / max(1e-9, _time_of(speculative, category))
            for category in categories
        },
        must_equal=must_equal,
    )


def _time_of(samples: Sequence[RequestSample], category: str) -> float:
    """Seconds that the requests of a category took, one after the other."""
    return sum(sample.total_s for sample in samples if sample.category == category)


def _sum_by_depth(counts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Sums at each depth; shorter rows count as 0 beyond their end."""
    depth = max((len(row) for row in counts), default=0)
    return tuple(sum(row[d] for row in counts if d < len(row)) for d in range(depth))
