"""Options and requests to `outrider.v1`. Pure; with `result_wire` the only place of the client that knows the messages'
fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields

from outrider.client.connection.errors import InvalidRequest
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.wire_values import listed
from outrider.v1 import generation_pb2, sampling_pb2

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
    is_listed = options.verifier in listed(message, "verifier")
    leave_out = () if is_listed else ("verifier",)
    _fill(message, options, "speculation", leave_out=leave_out)
    if options.verifier is not None and not is_listed:
        with _naming("speculation.verifier"):
            message.verifier_name = options.verifier
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
    with _naming("model_fingerprint"):
        request.model_fingerprint = model_fingerprint
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
    """The request that goes on where `tokens`, the whole output so far, end, at the model that said them and at no other."""
    again = generation_pb2.GenerateRequest()
    again.CopyFrom(request)
    again.sampling.seed = seed
    again.model_fingerprint = model_fingerprint
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
            elif choices := listed(message, name):
                if value not in choices:
                    raise ValueError(f"{value!r} is none of {', '.join(choices)}")
                setattr(message, name, choices[value])
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
