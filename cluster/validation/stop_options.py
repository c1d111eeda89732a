"""What ends an output: strings, token ids, end-of-text."""

from __future__ import annotations

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.prompt import check_token_ids
from outrider.cluster.validation.refusals import invalid
from outrider.v1 import sampling_pb2


def settle_stops(
    options: sampling_pb2.SamplingOptions, limits: Limits
) -> tuple[tuple[str, ...], frozenset[int]]:
    """Stop strings, and the token ids that end the output."""
    stops = tuple(options.stop)
    if stops and not limits.has_tokenizer:
        raise invalid(
            "sampling.stop", "needs a tokenizer and this service has none; use stop_token_ids"
        )
    stop_token_ids = tuple(options.stop_token_ids)
    check_token_ids(stop_token_ids, limits, "sampling.stop_token_ids")
    if options.ignore_eos and (both := limits.eos_token_ids.intersection(stop_token_ids)):
        raise invalid(
            "sampling.ignore_eos",
            f"contradicts sampling.stop_token_ids, which holds the end-of-text token {min(both)}",
        )
    eos = frozenset[int]() if options.ignore_eos else limits.eos_token_ids
    return stops, eos.union(stop_token_ids)
