"""A service to check requests against."""

from __future__ import annotations

from typing import Any

import grpc

from outrider.actors.speculation.options import Speculation
from outrider.cluster.validation.limits import KnownDrafter, Limits
from outrider.cluster.validation.settle import Settled
from outrider.cluster.validation.settle import settle as settle_request
from outrider.v1 import generation_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT
RANGE = grpc.StatusCode.OUT_OF_RANGE

LIMITS = Limits(
    model="m",
    fingerprint="f",
    vocab_size=100,
    max_context=50,
    eos_token_ids=frozenset({0}),
    verifiers=("coupled", "exact_match"),
    drafters=(
        KnownDrafter(name="a", verifiers=("coupled",)),
        KnownDrafter(name="b", verifiers=()),
        KnownDrafter(name="alien", verifiers=(), mismatch="its tokenizer is another"),
    ),
    default_max_tokens=16,
    speculation=Speculation(),
    has_tokenizer=True,
    has_chat_template=True,
    max_token_chars=4,
)


def settle(limits: Limits = LIMITS, prompt_length: int = 10, **fields: Any) -> Settled:
    """Settles a request of some fields."""
    request = generation_pb2.GenerateRequest(**fields)
    return settle_request(request, prompt_length=prompt_length, limits=limits, fresh_seed=77)
