"""How long the output may be, and what a resumed request has of it already."""

from __future__ import annotations

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, out_of_range
from outrider.v1 import sampling_pb2


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
        raise out_of_range("sampling.max_tokens", "must be at least 1, got 0")
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
