"""Numbers of the sampling options: each within its interval, each with its default."""

from __future__ import annotations

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, out_of_range, plain
from outrider.v1 import sampling_pb2

MAX_LOGIT_BIAS = 1024
MAX_LOGPROBS = 20
MAX_SEQUENCES = 16

EXCLUDED = -100.0
"""A logit bias of this or less excludes the token."""

_INTERVALS: dict[str, tuple[str, float, float]] = {
    "temperature": ("[0, 100]", 0.0, 100.0),
    "top_p": ("(0, 1]", 0.0, 1.0),
    "min_p": ("[0, 1]", 0.0, 1.0),
    "repetition_penalty": ("(0, 10]", 0.0, 10.0),
    "presence_penalty": ("[-2, 2]", -2.0, 2.0),
    "frequency_penalty": ("[-2, 2]", -2.0, 2.0),
}
"""Interval of each real option; a round bracket leaves the bound out."""


def check_reals(options: sampling_pb2.SamplingOptions) -> None:
    """Refuses real numbers outside their intervals; NaN is in none."""
    for name, (interval, low, high) in _INTERVALS.items():
        if not options.HasField(name):  # type: ignore[arg-type]  # the stub wants literals
            continue
        value = getattr(options, name)
        is_open = interval.startswith("(")
        if not (low <= value <= high) or (is_open and value == low):
            raise invalid(f"sampling.{name}", f"must be in {interval}, got {plain(value)}")


def real(options: sampling_pb2.SamplingOptions, name: str, default: float) -> float:
    """A real option, or its default."""
    return getattr(options, name) if options.HasField(name) else default  # type: ignore[arg-type]


def number(
    options: sampling_pb2.SamplingOptions, name: str, low: int, high: int, *, default: int
) -> int:
    """An option that counts something, or its default."""
    if not options.HasField(name):  # type: ignore[arg-type]
        return default
    value: int = getattr(options, name)
    if not low <= value <= high:
        raise invalid(f"sampling.{name}", f"must be {low} to {high}, got {value}")
    return value


def logit_bias(options: sampling_pb2.SamplingOptions, limits: Limits) -> dict[int, float]:
    """The bias of each token that has one."""
    bias = dict(options.logit_bias)
    if len(bias) > MAX_LOGIT_BIAS:
        raise invalid(
            "sampling.logit_bias", f"must hold at most {MAX_LOGIT_BIAS} entries, got {len(bias)}"
        )
    for token, value in bias.items():
        if token >= limits.vocab_size:
            raise out_of_range(
                f"sampling.logit_bias[{token}]",
                f"is outside the vocabulary of {limits.model!r}: ids must be below {limits.vocab_size}",
            )
        if not -100 <= value <= 100:
            raise invalid(
                f"sampling.logit_bias[{token}]", f"must be in [-100, 100], got {plain(value)}"
            )
    if sum(value <= EXCLUDED for value in bias.values()) >= limits.vocab_size:
        raise invalid(
            "sampling.logit_bias",
            f"excludes every one of the {limits.vocab_size} tokens; leave at least one",
        )
    return bias
