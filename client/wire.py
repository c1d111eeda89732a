"""Options and results to `outrider.v1` and back. Pure; the only place of the client that knows the messages' fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TypeVar

from grpc_health.v1 import health_pb2

from outrider.client.errors import InvalidRequest
from outrider.client.options import (
    DraftLength,
    Message,
    Roots,
    SamplingOptions,
    SpeculationOptions,
    TreeMask,
    Verifier,
)
from outrider.client.results import (
    ActorInfo,
    Admission,
    Completion,
    DrafterInfo,
    Event,
    FinishReason,
    Health,
    ModelInfo,
    Origin,
    SpeculationStats,
    Status,
    TextChunk,
    Timing,
    Token,
    TokenLogprob,
    Usage,
)
from outrider.v1 import generation_pb2, sampling_pb2

_VERIFIER_BY_VALUE: dict[int, Verifier] = {
    sampling_pb2.Verifier.Value(f"VERIFIER_{verifier.name}"): verifier for verifier in Verifier
}
_VALUE_BY_VERIFIER = {
    verifier: sampling_pb2.Verifier.Value(f"VERIFIER_{verifier.name}") for verifier in Verifier
}
Choice = TypeVar("Choice", DraftLength, Roots, TreeMask)

_VALUE_BY_LENGTH = {
    one: sampling_pb2.DraftLength.Value(f"DRAFT_LENGTH_{one.name}") for one in DraftLength
}
_VALUE_BY_ROOTS = {one: sampling_pb2.Roots.Value(f"ROOTS_{one.name}") for one in Roots}
_VALUE_BY_MASK = {one: sampling_pb2.TreeMask.Value(f"TREE_MASK_{one.name}") for one in TreeMask}
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

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Greatest size of a request: gRPC's own default for what a server takes. Beyond it the server could only answer
with a status that names no field."""


def sampling_to_proto(options: SamplingOptions) -> sampling_pb2.SamplingOptions:
    """Sets the fields that are not None; an absent field stays absent.

    Raises:
        InvalidRequest: A value does not fit the field's type.
    """
    message = sampling_pb2.SamplingOptions()
    _fill(message, options, "sampling")
    return message


def speculation_to_proto(options: SpeculationOptions) -> sampling_pb2.SpeculationOptions:
    """Sets the fields that are not None; an absent field stays absent.

    Raises:
        InvalidRequest: A value does not fit the field's type.
    """
    message = sampling_pb2.SpeculationOptions()
    if options.verifier is not None:
        with _naming("speculation.verifier"):
            message.verifier = _VALUE_BY_VERIFIER[Verifier(options.verifier)]
    if options.draft_length is not None:
        with _naming("speculation.draft_length"):
            message.draft_length = _VALUE_BY_LENGTH[DraftLength(options.draft_length)]
    if options.roots is not None:
        with _naming("speculation.roots"):
            message.roots = _VALUE_BY_ROOTS[Roots(options.roots)]
    if options.tree_mask is not None:
        with _naming("speculation.tree_mask"):
            message.tree_mask = _VALUE_BY_MASK[TreeMask(options.tree_mask)]
    leave_out = ("verifier", "draft_length", "roots", "tree_mask")
    _fill(message, options, "speculation", leave_out=leave_out)
    return message


def request_to_proto(
    *,
    request_id: str,
    model: str,
    prompt: str | None,
    tokens: Sequence[int] | None,
    messages: Sequence[Message] | None,
    sampling: SamplingOptions | None,
    speculation: SpeculationOptions | None,
    resume: Sequence[int],
) -> generation_pb2.GenerateRequest:
    """A generation request.

    Raises:
        InvalidRequest: Not exactly one of `prompt`, `tokens` and `messages` is given, a value does not fit its
            field, or the whole is too large.
    """
    _exactly_one(prompt=prompt, tokens=tokens, messages=messages)
    request = generation_pb2.GenerateRequest()
    with _naming("request_id"):
        request.request_id = request_id
    with _naming("model"):
        request.model = model
    if prompt is not None:
        with _naming("prompt"):
            request.text = prompt
    if tokens is not None:
        request.tokens.SetInParent()
        with _naming("tokens"):
            request.tokens.ids.extend(tokens)
    if messages is not None:
        request.chat.SetInParent()
        with _naming("messages"):
            request.chat.messages.extend(_chat(messages))
    if sampling is not None:
        request.sampling.CopyFrom(sampling_to_proto(sampling))
    if speculation is not None:
        request.speculation.CopyFrom(speculation_to_proto(speculation))
    if resume:
        with _naming("resume"):
            request.resume.ids.extend(resume)
    if request.ByteSize() > MAX_REQUEST_BYTES:
        raise InvalidRequest(
            f"the request is {request.ByteSize()} bytes, more than the {MAX_REQUEST_BYTES} that the service takes; "
            "shorten the prompt",
            field="prompt"
            if prompt is not None
            else "tokens"
            if tokens is not None
            else "messages",
            request_id=request_id,
        )
    return request


def resumed(
    request: generation_pb2.GenerateRequest, *, seed: int, tokens: Sequence[int]
) -> generation_pb2.GenerateRequest:
    """The request that goes on where `tokens`, the whole output so far, end."""
    again = generation_pb2.GenerateRequest()
    again.CopyFrom(request)
    again.sampling.seed = seed
    del again.resume.ids[:]
    again.resume.ids.extend(tokens)
    return again


def tokenize_to_proto(
    *,
    model: str,
    text: str | None,
    messages: Sequence[Message] | None,
    add_special_tokens: bool | None,
) -> generation_pb2.TokenizeRequest:
    """A tokenisation request.

    Raises:
        InvalidRequest: Not exactly one of `text` and `messages` is given, or a value does not fit its field.
    """
    _exactly_one(text=text, messages=messages)
    request = generation_pb2.TokenizeRequest()
    with _naming("model"):
        request.model = model
    if text is not None:
        with _naming("text"):
            request.text = text
    if messages is not None:
        request.chat.SetInParent()
        with _naming("messages"):
            request.chat.messages.extend(_chat(messages))
    if add_special_tokens is not None:
        request.add_special_tokens = add_special_tokens
    return request


def detokenize_to_proto(
    *, model: str, ids: Sequence[int], skip_special_tokens: bool | None
) -> generation_pb2.DetokenizeRequest:
    """A detokenisation request.

    Raises:
        InvalidRequest: A token id is not an unsigned 32-bit number.
    """
    request = generation_pb2.DetokenizeRequest()
    with _naming("model"):
        request.model = model
    with _naming("ids"):
        request.ids.extend(ids)
    if skip_special_tokens is not None:
        request.skip_special_tokens = skip_special_tokens
    return request


def event_from_proto(
    response: generation_pb2.GenerateResponse, *, drafters: Sequence[str]
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
                tokens=tuple(_token(token, drafters) for token in response.chunk.tokens),
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
        verifiers=_verifiers(model.verifiers),
        drafters=tuple(
            DrafterInfo(
                name=drafter.name,
                method=drafter.method,
                verifiers=_verifiers(drafter.verifiers),
                ready=drafter.ready,
                draft_lengths=_choices(drafter.draft_lengths, _VALUE_BY_LENGTH),
                problem=drafter.problem,
            )
            for drafter in model.drafters
        ),
        has_chat_template=model.has_chat_template,
        model_fingerprint=model.model_fingerprint,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
        draft_lengths=_choices(model.draft_lengths, _VALUE_BY_LENGTH),
        roots=_choices(model.roots, _VALUE_BY_ROOTS),
        tree_masks=_choices(model.tree_masks, _VALUE_BY_MASK),
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
            )
            for actor in status.actors
        ),
    )


def health_from_proto(response: health_pb2.HealthCheckResponse) -> Health:
    """What the health service said."""
    return _HEALTH_BY_VALUE.get(response.status, Health.UNKNOWN)


def _fill(
    message: sampling_pb2.SamplingOptions | sampling_pb2.SpeculationOptions,
    options: SamplingOptions | SpeculationOptions,
    prefix: str,
    leave_out: Sequence[str] = (),
) -> None:
    """Copies what is set of a dataclass to the message's fields of the same names."""
    for option in fields(options):
        name, value = option.name, getattr(options, option.name)
        if value is None or name in leave_out:
            continue
        with _naming(f"{prefix}.{name}"):
            if isinstance(value, Mapping):
                getattr(message, name).update(value)
            elif isinstance(value, str) and option.default == ():
                raise TypeError(f"{value!r} is one string, a sequence of them is needed")
            elif isinstance(value, Sequence) and not isinstance(value, str):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)


def _chat(messages: Iterable[Message]) -> list[generation_pb2.ChatMessage]:
    """The turns of a conversation."""
    turns = []
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(f"{message!r} is not an outrider.client.Message")
        turns.append(generation_pb2.ChatMessage(role=message.role, content=message.content))
    return turns


def _admission(admission: generation_pb2.Admission) -> Admission:
    """What the service settled."""
    return Admission(
        request_id=admission.request_id,
        model=admission.model,
        seed=admission.seed,
        prompt_tokens=admission.prompt_tokens,
        drafters=tuple(admission.drafters),
    )


def _token(token: generation_pb2.Token, drafters: Sequence[str]) -> Token:
    """One output token, its drafter by name."""
    drafter: str | None = None
    if token.HasField("drafter"):
        known = token.drafter < len(drafters)
        drafter = drafters[token.drafter] if known else f"drafter {token.drafter}"
    return Token(
        id=token.id,
        origin=_ORIGIN_BY_VALUE.get(token.origin, Origin.UNKNOWN),
        drafter=drafter,
        logprob=token.logprob if token.HasField("logprob") else None,
        top_logprobs=tuple(
            TokenLogprob(id=top.id, logprob=top.logprob) for top in token.top_logprobs
        ),
    )


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


def _verifiers(values: Iterable[int]) -> tuple[Verifier, ...]:
    """The verifiers that this version knows."""
    return tuple(_VERIFIER_BY_VALUE[value] for value in values if value in _VERIFIER_BY_VALUE)


def _choices(values: Iterable[int], known: Mapping[Choice, int]) -> tuple[Choice, ...]:
    """The policies that this version knows."""
    by_value = {value: one for one, value in known.items()}
    return tuple(by_value[value] for value in values if value in by_value)


def _exactly_one(**given: object) -> None:
    """Refuses none, or several, of the ways to state an input."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise InvalidRequest(
            f"exactly one of {', '.join(given)} must be given, not "
            + (" and ".join(names) if names else "none of them"),
            field=names[1] if names else next(iter(given)),
        )


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Turns what protobuf refuses into an error that names the field."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"{field}: {error}", field=field) from error
