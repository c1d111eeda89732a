"""What the service answers from `outrider.v1`. Pure; with `request_wire` the only place of the client that knows the messages'
fields."""

from __future__ import annotations

from functools import lru_cache

from grpc_health.v1 import health_pb2

from outrider.client.messages.request_options import DraftLength, Roots, Verifier
from outrider.client.messages.results import (
    Admission,
    Completion,
    Event,
    FinishReason,
    Origin,
    SpeculationStats,
    TextChunk,
    Timing,
    Token,
    TokenLogprob,
    Usage,
)
from outrider.client.messages.service_info import (
    ActorInfo,
    DrafterInfo,
    Health,
    ModelInfo,
    NumberOptionInfo,
    Replicas,
    SelectorInfo,
    Status,
    VerifierInfo,
)
from outrider.client.messages.wire_values import chosen, told
from outrider.v1 import generation_pb2

KEPT = 1 << 15
"""Tokens that are kept: making one takes longer than everything else that is done for it."""


_ORIGIN_BY_VALUE: dict[int, Origin] = {
    generation_pb2.ORIGIN_TARGET: Origin.TARGET,
    generation_pb2.ORIGIN_DRAFTER: Origin.DRAFTER,
}
_FINISH_BY_VALUE: dict[int, FinishReason] = {
    generation_pb2.FinishReason.Value(f"FINISH_REASON_{reason.name}"): reason
    for reason in FinishReason
    if reason is not FinishReason.UNKNOWN
}
_HEALTH_BY_VALUE: dict[int, Health] = {
    health_pb2.HealthCheckResponse.ServingStatus.Value(health.name): health for health in Health
}


def event_from_proto(
    response: generation_pb2.GenerateResponse, *, drafters: tuple[str, ...]
) -> Event | None:
    """One event of a stream; None for an event that this version does not know.

    Args:
        response: The message.
        drafters: The names that the stream's admission gave; token origins count them.
    """
    match response.WhichOneof("event"):
        case "admission":
            return told(Admission, response.admission)
        case "chunk":
            return TextChunk(
                index=response.index,
                text=response.chunk.text,
                tokens=tuple([_token(token, drafters) for token in response.chunk.tokens]),
            )
        case "completion":
            return _completion(response.index, response.completion)
        case _:
            return None


def model_from_proto(model: generation_pb2.TargetModel) -> ModelInfo:
    """One target model."""
    return told(
        ModelInfo,
        model,
        verifiers=(
            *chosen(model, "verifiers", Verifier),
            *(one.name for one in model.verifier_infos if one.name not in tuple(Verifier)),
        ),
        verifier_infos=tuple(map(_verifier, model.verifier_infos)),
        drafters=tuple(map(_drafter, model.drafters)),
        draft_lengths=chosen(model, "draft_lengths", DraftLength),
        roots=chosen(model, "roots", Roots),
        selectors=tuple(told(SelectorInfo, one, options=_options(one)) for one in model.selectors),
    )


def status_from_proto(status: generation_pb2.GetStatusResponse) -> Status:
    """The state of the service."""
    return told(
        Status,
        status,
        actors=tuple(told(ActorInfo, actor) for actor in status.actors),
        replicas=tuple(told(Replicas, one, least=one.min, most=one.max) for one in status.replicas),
    )


def health_from_proto(response: health_pb2.HealthCheckResponse) -> Health:
    """What the health service said."""
    return _HEALTH_BY_VALUE.get(response.status, Health.UNKNOWN)


def _token(token: generation_pb2.Token, drafters: tuple[str, ...]) -> Token:
    """One output token, its drafter by name."""
    plain = _plain_token(
        token.id, token.origin, token.drafter if token.HasField("drafter") else None, drafters
    )
    if not token.HasField("logprob"):
        return plain
    return Token(
        id=plain.id,
        origin=plain.origin,
        drafter=plain.drafter,
        logprob=token.logprob,
        top_logprobs=tuple(
            [TokenLogprob(id=top.id, logprob=top.logprob) for top in token.top_logprobs]
        ),
    )


@lru_cache(KEPT)
def _plain_token(token: int, origin: int, drafter: int | None, drafters: tuple[str, ...]) -> Token:
    """A token without log-probabilities: a value, so streams share it."""
    name: str | None = None
    if drafter is not None:
        name = drafters[drafter] if drafter < len(drafters) else f"drafter {drafter}"
    return Token(id=token, origin=_ORIGIN_BY_VALUE.get(origin, Origin.UNKNOWN), drafter=name)


def _completion(index: int, completion: generation_pb2.Completion) -> Completion:
    """The end of a sequence."""
    return Completion(
        index=index,
        finish_reason=_FINISH_BY_VALUE.get(completion.finish_reason, FinishReason.UNKNOWN),
        stop=completion.stop,
        usage=told(Usage, completion.usage),
        speculation=told(SpeculationStats, completion.speculation),
        timing=told(Timing, completion.timing),
    )


def _drafter(drafter: generation_pb2.DrafterModel) -> DrafterInfo:
    """A drafter of a model."""
    return told(
        DrafterInfo,
        drafter,
        verifiers=(*chosen(drafter, "verifiers", Verifier), *drafter.verifier_names),
        draft_lengths=chosen(drafter, "draft_lengths", DraftLength),
    )


def _verifier(info: generation_pb2.VerifierInfo) -> VerifierInfo:
    """A verifier on offer."""
    return told(VerifierInfo, info, options=_options(info))


def _options(
    info: generation_pb2.VerifierInfo | generation_pb2.SelectorInfo,
) -> tuple[NumberOptionInfo, ...]:
    return tuple(told(NumberOptionInfo, one, default=one.default_value) for one in info.options)
