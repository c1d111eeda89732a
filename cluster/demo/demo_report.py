"""What the demonstration found: the texts decoded both ways, and the figures over them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.client.measuring.figures import acceptance_by_depth, first_difference, total_stats
from outrider.client.messages.results import Completion, Token

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One text, decoded one way."""

    text: str
    tokens: tuple[Token, ...]
    passes: tuple[int, ...]
    """Tokens that came together, in order: what each target pass committed."""

    completion: Completion
    start_us: float
    """When it was asked for, in microseconds since the epoch."""

    duration_us: float
    """Until its end, by the client's clock."""

    @property
    def decode_s(self) -> float:
        """Seconds from arrival to the end, by the service's clock."""
        return self.completion.timing.total_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One prompt with one seed, decoded plainly and speculatively."""

    category: str
    prompt: str
    temperature: float
    seed: int
    plain: Decoded
    speculative: Decoded

    @property
    def first_difference(self) -> int | None:
        """The first token that differs; None if the outputs are the same."""
        return first_difference(
            [token.id for token in self.plain.tokens],
            [token.id for token in self.speculative.tokens],
        )

    @property
    def has_near_tie(self) -> bool:
        """Some draw was nearer than 1e-4 to another outcome, so that rounding can explain a difference."""
        runs = (self.plain, self.speculative)
        return any(run.completion.speculation.near_ties for run in runs)

    @property
    def is_unexplained(self) -> bool:
        """The outputs differ, and no near tie explains it."""
        return self.first_difference is not None and not self.has_near_tie

    @property
    def speed_up(self) -> float:
        """Tokens a second, speculative over plain."""
        return _ratio(_rate([self.speculative]), _rate([self.plain]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTotals:
    """Figures over many pairs."""

    temperature: float | None
    """None: of all temperatures."""

    texts: int
    equal: int
    tokens: int
    plain_tokens_per_s: float
    speculative_tokens_per_s: float
    speed_up: float
    mean_tokens_per_pass: float
    acceptance: float
    """Accepted candidates as a fraction of those verified."""

    acceptance_by_depth: tuple[float, ...]
    time_shares: dict[str, float]
    """Where the time of speculative decoding went, as fractions of the whole."""


def totals(pairs: Sequence[Pair], *, temperature: float | None = None) -> DemoTotals:
    """The figures over the pairs of one temperature, or over all."""
    chosen = [pair for pair in pairs if temperature in (None, pair.temperature)]
    plain = [pair.plain for pair in chosen]
    fast = [pair.speculative for pair in chosen]
    stats = total_stats([run.completion.speculation for run in fast])
    return DemoTotals(
        temperature=temperature,
        texts=len(chosen),
        equal=sum(pair.first_difference is None for pair in chosen),
        tokens=sum(len(run.tokens) for run in fast),
        plain_tokens_per_s=_rate(plain),
        speculative_tokens_per_s=_rate(fast),
        speed_up=_ratio(_rate(fast), _rate(plain)),
        mean_tokens_per_pass=stats.mean_tokens_per_pass,
        acceptance=_ratio(stats.accepted, stats.verified),
        acceptance_by_depth=acceptance_by_depth(stats),
        time_shares=time_shares(fast),
    )


def time_shares(runs: Sequence[Decoded]) -> dict[str, float]:
    """Where the time went, as fractions; what the service does not name is `elsewhere`."""
    timings = [run.completion.timing for run in runs]
    whole_s = sum(timing.total_s for timing in timings)
    named = {
        "queue": sum(timing.queue_s for timing in timings),
        "prefill": sum(timing.prefill_s for timing in timings),
        "verification": sum(timing.verify_s for timing in timings),
        "waiting for drafts": sum(timing.draft_wait_s for timing in timings),
    }
    named["elsewhere"] = max(0.0, whole_s - sum(named.values()))
    return {name: _ratio(seconds, whole_s) for name, seconds in named.items()}


def origins(runs: Sequence[Decoded]) -> dict[str, int]:
    """How many tokens each proposed: the target, and each drafter by name."""
    counts: dict[str, int] = {}
    for token in (token for run in runs for token in run.tokens):
        name = token.drafter or token.origin.value
        counts[name] = counts.get(name, 0) + 1
    return counts


def pass_bars(passes: Sequence[int]) -> str:
    """One bar a target pass, as high as the tokens it committed."""
    return "".join(_BARS[min(size, len(_BARS)) - 1] for size in passes if size > 0)


def share_bar(share: float, width: int) -> str:
    """A bar of this share of the width."""
    return ("█" * round(min(1.0, max(0.0, share)) * width)).ljust(width, "·")


def _rate(runs: Sequence[Decoded]) -> float:
    """Tokens a second."""
    return _ratio(sum(len(run.tokens) for run in runs), sum(run.decode_s for run in runs))


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


def report_as_dict(
    pairs: Sequence[Pair],
    streams: Mapping[int, Sequence[Pair]],
    trace: Path,
    *,
    emulated: Sequence[str] = (),
) -> dict[str, object]:
    """What `--json` prints: the texts, the figures over them, and those over the streams by their length in tokens. `emulated`:
    the profiles of emulated devices."""
    temperatures = dict.fromkeys(pair.temperature for pair in pairs)
    return {
        "texts": [
            {
                "category": pair.category,
                "temperature": pair.temperature,
                "seed": pair.seed,
                "prompt": pair.prompt,
                "text": pair.speculative.text,
                "tokens": len(pair.speculative.tokens),
                "equal": pair.first_difference is None,
                "first_difference": pair.first_difference,
                "near_tie": pair.has_near_tie,
                "speed_up": pair.speed_up,
                "plain": asdict(pair.plain.completion),
                "speculative": asdict(pair.speculative.completion),
            }
            for pair in pairs
        ],
        "totals": asdict(totals(pairs)),
        "by_temperature": [asdict(totals(pairs, temperature=value)) for value in temperatures],
        "by_length": [
            {"max_tokens": length, **asdict(totals(found))} for length, found in streams.items()
        ],
        "trace": str(trace),
        "emulated": list(emulated),
    }
