"""Options and requests to `outrider.v1`. Pure; with `result_wire` the only place of the client that knows the messages'
fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.wanted import of_kind, wrong
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.wire_values import listed, put
from outrider.v1 import generation_pb2, sampling_pb2

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Greatest size of a request: gRPC's own default for what a server takes. Beyond it the server could only answer
with a status that names no field."""


def sampling_to_proto(options: SamplingOptions) -> sampling_pb2.SamplingOptions:
    """Sets the fields that are not None; an absent field stays absent.

    Raises:
        InvalidRequest: They are of another kind, or a value does not fit the field's type.
    """
    of_kind("sampling", options, SamplingOptions)
    message = sampling_pb2.SamplingOptions()
    _fill(message, options, "sampling")
    return message


def speculation_to_proto(options: SpeculationOptions) -> sampling_pb2.SpeculationOptions:
    """Sets the fields that are not None; an absent field stays absent.

    Raises:
        InvalidRequest: They are of another kind, or a value does not fit the field's type.
    """
    of_kind("speculation", options, SpeculationOptions)
    message = sampling_pb2.SpeculationOptions()
    _fill(message, options, "speculation", leave_out=("verifier",))
    verifier = options.verifier
    if verifier is not None:
        is_listed = isinstance(verifier, str) and verifier in listed(message, "verifier")
        put(message, "verifier" if is_listed else "verifier_name", verifier, "speculation.verifier")
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
    model_fingerprint: str = "",
) -> generation_pb2.GenerateRequest:
    """A generation request.

    Raises:
        InvalidRequest: Not exactly one of `prompt`, `tokens` and `messages` is given, a value does not fit its
            field, or the whole is too large.
    """
    _exactly_one(prompt=prompt, tokens=tokens, messages=messages)
    request = generation_pb2.GenerateRequest()
    put(request, "request_id", request_id, "request_id")
    put(request, "model", model, "model")
    if prompt is not None:
        put(request, "text", prompt, "prompt")
    if tokens is not None:
        request.tokens.SetInParent()
        put(request.tokens, "ids", tokens, "tokens")
    if messages is not None:
        request.chat.SetInParent()
        request.chat.messages.extend(_chat(messages))
    if sampling is not None:
        request.sampling.CopyFrom(sampling_to_proto(sampling))
    if speculation is not None:
        request.speculation.CopyFrom(speculation_to_proto(speculation))
    put(request.resume, "ids", resume, "resume")
    put(request, "model_fingerprint", model_fingerprint, "model_fingerprint")
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
    request: generation_pb2.GenerateRequest,
    *,
    seed: int,
    model_fingerprint: str,
    tokens: Sequence[int],
) -> generation_pb2.GenerateRequest:
    """The request that goes on where `tokens`, the whole output so far, end, at the model that said them and at no other. Without any it
    begins anew, as is possible for several sequences too."""
    again = generation_pb2.GenerateRequest()
    again.CopyFrom(request)
    again.sampling.seed = seed
    again.model_fingerprint = model_fingerprint
    again.ClearField("resume")
    if tokens:
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
    put(request, "model", model, "model")
    if text is not None:
        put(request, "text", text, "text")
    if messages is not None:
        request.chat.SetInParent()
        request.chat.messages.extend(_chat(messages))
    if add_special_tokens is not None:
        put(request, "add_special_tokens", add_special_tokens, "add_special_tokens")
    return request


def detokenize_to_proto(
    *, model: str, ids: Sequence[int], skip_special_tokens: bool | None
) -> generation_pb2.DetokenizeRequest:
    """A detokenisation request.

    Raises:
        InvalidRequest: A token id is not an unsigned 32-bit number, or another value does not fit its field.
    """
    request = generation_pb2.DetokenizeRequest()
    put(request, "model", model, "model")
    put(request, "ids", ids, "ids")
    if skip_special_tokens is not None:
        put(request, "skip_special_tokens", skip_special_tokens, "skip_special_tokens")
    return request


def _fill(
    message: sampling_pb2.SamplingOptions | sampling_pb2.SpeculationOptions,
    options: SamplingOptions | SpeculationOptions,
    prefix: str,
    leave_out: Sequence[str] = (),
) -> None:
    """Copies what is set of a dataclass to the message's fields of the same names."""
    for option in fields(options):
        value = getattr(options, option.name)
        if value is not None and option.name not in leave_out:
            put(message, option.name, value, f"{prefix}.{option.name}")


def _chat(messages: Iterable[Message]) -> list[generation_pb2.ChatMessage]:
    """The turns of a conversation."""
    if not isinstance(messages, Iterable) or isinstance(messages, str):
        raise wrong("messages", messages, "a list of outrider.client.Message")
    turns = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        of_kind(place, message, Message)
        turns.append(generation_pb2.ChatMessage())
        put(turns[-1], "role", message.role, f"{place}.role")
        put(turns[-1], "content", message.content, f"{place}.content")
    return turns


def _exactly_one(**given: object) -> None:
    """Refuses none, or several, of the ways to state an input."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise InvalidRequest(
            f"exactly one of {', '.join(given)} must be given, not "
            + (" and ".join(names) if names else "none of them"),
            field=names[1] if names else next(iter(given)),
        )
