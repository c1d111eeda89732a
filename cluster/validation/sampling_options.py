"""The sampling options that are more than a number in a range: what ends an output, how long it may be, biases of tokens.

What holds of one field alone is in `rules`.
"""

from __future__ import annotations

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.prompt import check_token_ids
from outrider.cluster.validation.refusals import invalid, out_of_range
from outrider.v1 import sampling_pb2

EXCLUDED = -100.0
"""A logit bias of this or less excludes the token."""


def check_resume(options: sampling_pb2.SamplingOptions, num_sequences: int) -> None:
    """Refuses to resume what cannot be told apart or repeated: several sequences, or a seed that is not known."""
    if not options.HasField("seed"):
        raise invalid(
            "resume", "needs sampling.seed: give the seed that the first stream's admission told"
        )
    if num_sequences != 1:
        raise invalid("resume", f"needs sampling.n = 1, got {num_sequences}")


def settle_max_tokens(
    options: sampling_pb2.SamplingOptions, prompt_length: int, num_resumed: int, limits: Limits
) -> int:
    """Greatest number of output tokens, the resumed ones included: what is asked for, or what there is room for."""
    room = limits.max_context - prompt_length
    if not options.HasField("max_tokens"):
        max_tokens = min(limits.default_max_tokens, room)
    elif options.max_tokens < 1:
        raise invalid("sampling.max_tokens", "must be at least 1, got 0")
    elif options.max_tokens > room:
        raise out_of_range(
            "sampling.max_tokens",
            f"is {options.max_tokens}, but a context of {limits.max_context} tokens with a prompt of "
            f"{prompt_length} leaves {room}",
        )
    else:
        max_tokens = options.max_tokens
    if options.min_tokens > max_tokens:
        raise invalid(
            "sampling.min_tokens",
            f"is {options.min_tokens}, greater than the {max_tokens} of sampling.max_tokens",
        )
    if num_resumed > max_tokens:
        raise invalid(
            "resume.ids",
            f"holds {num_resumed} tokens, more than the {max_tokens} of sampling.max_tokens",
        )
    return max_tokens


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


def settle_logit_bias(
    options: sampling_pb2.SamplingOptions, stop_tokens: frozenset[int], limits: Limits
) -> dict[int, float]:
    """The bias of each token that has one. Some token must be left, also while none of `stop_tokens` may end the output."""
    bias = dict(options.logit_bias)
    for token in bias:
        if token >= limits.vocab_size:
            raise out_of_range(
                f"sampling.logit_bias[{token}]",
                f"is outside the vocabulary of {limits.model!r}: ids must be below {limits.vocab_size}",
            )
    excluded = {token for token, value in bias.items() if value <= EXCLUDED}
    if len(excluded) >= limits.vocab_size:
        raise invalid(
            "sampling.logit_bias",
            f"excludes every one of the {limits.vocab_size} tokens; leave at least one",
        )
    if excluded and options.min_tokens and len(excluded | stop_tokens) >= limits.vocab_size:
        raise invalid(
            "sampling.logit_bias",
            f"excludes every token that does not end the output, and sampling.min_tokens is {options.min_tokens}; "
            "leave such a token, or leave min_tokens out",
        )
    return bias
