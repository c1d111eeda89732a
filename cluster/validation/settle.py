"""All options of a request, checked and with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.speculation.options import Sampling, Speculation
from outrider.cluster.validation.length import check_resume, settle_max_tokens
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.prompt import check_token_ids
from outrider.cluster.validation.sampling_options import (
    MAX_LOGPROBS,
    MAX_SEQUENCES,
    check_reals,
    logit_bias,
    number,
    real,
)
from outrider.cluster.validation.speculation_options import settle_speculation
from outrider.cluster.validation.stop_options import settle_stops
from outrider.v1 import generation_pb2


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
    check_reals(options)
    num_sequences = number(options, "n", 1, MAX_SEQUENCES, default=1)
    resume = tuple(request.resume.ids)
    check_token_ids(resume, limits, "resume.ids")
    if request.HasField("resume"):
        check_resume(options, num_sequences)
    max_tokens = settle_max_tokens(options, prompt_length, len(resume), limits)
    stops, stop_tokens = settle_stops(options, limits)
    speculation, drafters = settle_speculation(request.speculation, limits)
    return Settled(
        sampling=Sampling(
            seed=options.seed if options.HasField("seed") else fresh_seed,
            max_tokens=max_tokens,
            temperature=real(options, "temperature", 1.0),
            top_p=real(options, "top_p", 1.0),
            top_k=options.top_k,
            min_p=options.min_p,
            repetition_penalty=real(options, "repetition_penalty", 1.0),
            presence_penalty=options.presence_penalty,
            frequency_penalty=options.frequency_penalty,
            logit_bias=logit_bias(options, limits),
            min_tokens=options.min_tokens,
            stop_token_ids=tuple(options.stop_token_ids),
            ignore_eos=options.ignore_eos,
            logprobs=number(options, "logprobs", 0, MAX_LOGPROBS, default=0)
            if options.HasField("logprobs")
            else None,
        ),
        num_sequences=num_sequences,
        stops=stops,
        stop_tokens=stop_tokens,
        resume=resume,
        speculation=speculation,
        drafters=drafters,
    )
