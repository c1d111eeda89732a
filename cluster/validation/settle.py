"""All options of a request, checked and with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.exchange.option_fields import values
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.prompt import check_token_ids
from outrider.cluster.validation.rules import check_fields
from outrider.cluster.validation.sampling_options import (
    check_resume,
    settle_logit_bias,
    settle_max_tokens,
    settle_stops,
)
from outrider.cluster.validation.speculation_options import settle_speculation
from outrider.v1 import generation_pb2

_OWN = ("seed", "max_tokens", "logit_bias")
"""Fields of `Sampling` whose value is more than what the client wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Options of a request with every default filled in."""

    sampling: Sampling
    """Of sequence 0; the others differ in the seed."""

    num_sequences: int
    stops: tuple[str, ...]
    stop_tokens: frozenset[int]
    """Token ids that end the output, end-of-text included unless it is ignored."""

    resume: tuple[int, ...]
    speculation: Speculation
    drafters: tuple[str, ...]
    """Drafters to use, in the order asked for; all that fit where the request does not say."""


def settle(
    request: generation_pb2.GenerateRequest,
    *,
    prompt_length: int,
    limits: Limits,
    fresh_seed: int,
) -> Settled:
    """Checks the options of a request and fills in the defaults.

    Args:
        request: What the client wrote.
        prompt_length: Number of prompt tokens.
        limits: What the service offers.
        fresh_seed: The seed to use if the request has none.

    Raises:
        Refusal: An option is wrong.
    """
    options = request.sampling
    check_fields(options, "sampling")
    check_fields(request.speculation, "speculation")
    num_sequences = options.n if options.HasField("n") else 1
    resume = tuple(request.resume.ids)
    check_token_ids(resume, limits, "resume.ids")
    if request.HasField("resume"):
        check_resume(options, num_sequences)
    max_tokens = settle_max_tokens(options, prompt_length, len(resume), limits)
    stops, stop_tokens = settle_stops(options, limits)
    speculation, drafters = settle_speculation(request.speculation, limits)
    return Settled(
        sampling=Sampling(
            **values(options, Sampling, leave_out=_OWN),
            seed=options.seed if options.HasField("seed") else fresh_seed,
            max_tokens=max_tokens,
            logit_bias=settle_logit_bias(options, stop_tokens, limits),
        ),
        num_sequences=num_sequences,
        stops=stops,
        stop_tokens=stop_tokens,
        resume=resume,
        speculation=speculation,
        drafters=drafters,
    )
