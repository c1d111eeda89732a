"""The biases of tokens: the one sampling option that is more than a number."""

from __future__ import annotations

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, out_of_range
from outrider.v1 import sampling_pb2

EXCLUDED = -100.0
"""A logit bias of this or less excludes the token."""


def logit_bias(options: sampling_pb2.SamplingOptions, limits: Limits) -> dict[int, float]:
    """The bias of each token that has one."""
    bias = dict(options.logit_bias)
    for token in bias:
        if token >= limits.vocab_size:
            raise out_of_range(
                f"sampling.logit_bias[{token}]",
                f"is outside the vocabulary of {limits.model!r}: ids must be below {limits.vocab_size}",
            )
    if sum(value <= EXCLUDED for value in bias.values()) >= limits.vocab_size:
        raise invalid(
            "sampling.logit_bias",
            f"excludes every one of the {limits.vocab_size} tokens; leave at least one",
        )
    return bias
