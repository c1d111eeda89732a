"""What the service answers from `outrider.v1`. Pure; with `request_wire` the only place of the client that knows the messages'
fields."""

from __future__ import annotations

from functools import lru_cache

from grpc_health.v1 import health_pb2

from outrider.client.messages.request_options import DraftLength, Roots, Verifier
from outrider.client.messages.results import (
    ActorInfo,
    Admission,
    Completion,
    DrafterInfo,
    Event,
    FinishReason,
    Health,
    ModelInfo,
    NumberOptionInfo,
    Origin,
    Replicas,
    SpeculationStats,
    Status,
    TextChunk,
    Timing,
    Token,
    TokenLogprob,
    Usage,
    VerifierInfo,
)
from outrider.client.messages.wire_values import chosen
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
            return _admission(response.admission)
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
    return ModelInfo(
        name=model.name,
        vocab_size=model.vocab_size,
        max_context=model.max_context,
        eos_token_ids=tuple(model.eos_token_ids),
        verifiers=(
            *chosen(model, "verifiers", Verifier),
            *(one.name for one in model.verifier_infos if one.name not in tuple(Verifier)),
        ),
        verifier_infos=tuple(map(_verifier, model.verifier_infos)),
        drafters=tuple(
            DrafterInfo(
                name=drafter.name,
                method=drafter.method,
                verifiers=_verifiers(drafter),
                ready=drafter.ready,
                draft_lengths=chosen(drafter, "draft_lengths", DraftLength),
                problem=drafter.problem,
            )
            for drafter in model.drafters
        ),
        has_chat_template=model.has_chat_template,
        model_fingerprint=model.model_fingerprint,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
        draft_lengths=chosen(model, "draft_lengths", DraftLength),
        roots=chosen(model, "roots", Roots),
        emulated=model.emulated,
    )


def status_from_proto(status: generation_pb2.GetStatusResponse) -> Status:
    """The state of the service."""
    return Status(
        version=status.version,
        uptime_s=status.uptime_s,
        running=status.running,
        waiting=status.waiting,
        finished=status.finished,
        accepting=status.accepting,
        refused_registrations=status.refused_registrations,
        last_refusal=status.last_refusal,
        emulated=status.emulated,
        actors=tuple(
            ActorInfo(
                name=actor.name,
                role=actor.role,
                address=actor.address,
                incarnation=actor.incarnation,
                ready=actor.ready,
                model=actor.model,
                sessions=actor.sessions,
                capacity=actor.capacity,
                busy=actor.busy,
                pid=actor.pid,
                problem=actor.problem,
                tokens=actor.tokens,
                verified=actor.verified,
                accepted=actor.accepted,
                feedback_bytes=actor.feedback_bytes,
                feedback_dropped=actor.feedback_dropped,
                note=actor.note,
            )
            for actor in status.actors
        ),
        replicas=tuple(
            Replicas(
                name=one.name,
                role=one.role,
                wanted=one.wanted,
                running=one.running,
                least=one.min,
                most=one.max,
                reason=one.reason,
            )
            for one in status.replicas
        ),
    )


def health_from_proto(response: health_pb2.HealthCheckResponse) -> Health:
    """What the health service said."""
    return _HEALTH_BY_VALUE.get(response.status, Health.UNKNOWN)


def _admission(admission: generation_pb2.Admission) -> Admission:
    """What the service settled."""
    return Admission(
        request_id=admission.request_id,
        model=admission.model,
        seed=admission.seed,
        prompt_tokens=admission.prompt_tokens,
        drafters=tuple(admission.drafters),
        model_fingerprint=admission.model_fingerprint,
        emulated=admission.emulated,
    )


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
    usage, stats, timing = completion.usage, completion.speculation, completion.timing
    return Completion(
        index=index,
        finish_reason=_FINISH_BY_VALUE.get(completion.finish_reason, FinishReason.UNKNOWN),
        stop=completion.stop,
        usage=Usage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
        ),
        speculation=SpeculationStats(
            rounds=stats.rounds,
            plain_passes=stats.plain_passes,
            proposed=stats.proposed,
            verified=stats.verified,
            accepted=stats.accepted,
            stale=stats.stale,
            reached_by_depth=tuple(stats.reached_by_depth),
            accepted_by_depth=tuple(stats.accepted_by_depth),
            mean_tokens_per_pass=stats.mean_tokens_per_pass,
            near_ties=stats.near_ties,
            candidate_messages=stats.candidate_messages,
            wire_bytes=stats.wire_bytes,
        ),
        timing=Timing(
            queue_s=timing.queue_s,
            prefill_s=timing.prefill_s,
            draft_wait_s=timing.draft_wait_s,
            verify_s=timing.verify_s,
            first_token_s=timing.first_token_s,
            total_s=timing.total_s,
        ),
    )


def _verifiers(message: generation_pb2.DrafterModel) -> tuple[Verifier | str, ...]:
    """The verifiers that a drafter serves."""
    return (*chosen(message, "verifiers", Verifier), *message.verifier_names)


def _verifier(info: generation_pb2.VerifierInfo) -> VerifierInfo:
    """A verifier on offer."""
    return VerifierInfo(
        name=info.name,
        summary=info.summary,
        source=info.source,
        lossless=info.lossless,
        options=tuple(
            NumberOptionInfo(
                name=one.name,
                default=one.default_value,
                least=one.least,
                most=one.most,
                help=one.help,
            )
            for one in info.options
        ),
    )
