"""`GenerationService` for a gRPC server: bytes are parsed, and every refusal becomes the call's status, in one place.

Of requests that are no messages of this contract, or too large, it is told which field is at fault. gRPC and protobuf say neither: a parser only
tells that some string was not UTF-8, a server that a message was too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import grpc
import structlog
from google.protobuf import empty_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from outrider.cluster.gateway.gateway import Context, Gateway
from outrider.cluster.requests.chunk_bytes import serialised
from outrider.cluster.validation.status_codes import Refusal, trailing_metadata
from outrider.v1 import generation_pb2

log = structlog.get_logger(__name__)

Parser = Callable[[bytes], "Message | Refusal"]
"""Turns the bytes of a request into a message, or into the refusal to answer with."""


def handlers(gateway: Gateway, *, max_request_bytes: int) -> grpc.GenericRpcHandler:
    """The service for a gRPC server, which must let requests of more than `max_request_bytes` pass.

    Made from the contract's descriptor rather than by the generated code, because a request that cannot be parsed must
    be answered with INVALID_ARGUMENT, and gRPC would answer UNKNOWN; and one that is too large with the field that is.
    """
    service = generation_pb2.DESCRIPTOR.services_by_name["GenerationService"]
    methods = {}
    for method in service.methods:
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        methods[method.name] = make(
            _guarded(getattr(gateway, method.name)),
            request_deserializer=parser(
                message_factory.GetMessageClass(method.input_type), max_bytes=max_request_bytes
            ),
            response_serializer=serialised,
        )
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _guarded(
    method: Callable[[Any, Context], Awaitable[Any]],
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method whose refusals become the call's status."""

    async def answer(request: Any, context: Context) -> Any:
        if isinstance(request, Refusal):
            refusal = request
        else:
            try:
                return await method(request, context)
            except Refusal as error:
                refusal = error
            except Exception:
                log.exception("a request failed", method=getattr(method, "__name__", ""))
                refusal = Refusal(
                    grpc.StatusCode.INTERNAL, "the coordinator failed; its log says how"
                )
        return await context.abort(refusal.code, refusal.message, trailing_metadata(refusal))

    return answer


def parser(message_type: type[Message], *, max_bytes: int) -> Parser:
    """A parser for requests of one type.

    Args:
        message_type: The type.
        max_bytes: Greatest size of a request.
    """

    descriptor = cast(Descriptor, message_type.DESCRIPTOR)

    def parse(data: bytes) -> Message | Refusal:
        try:
            message = message_type.FromString(data)
        except DecodeError as error:
            return unreadable(data, descriptor, str(error))
        return message if len(data) <= max_bytes else too_large(message, len(data), max_bytes)

    return parse


def unreadable(data: bytes, descriptor: Descriptor, problem: str) -> Refusal:
    """The refusal of bytes that are no message; names the first field whose text is not UTF-8."""
    field = invalid_text(data, descriptor)
    if field:
        message = f"{field} is not valid UTF-8; send text, or token ids"
    else:
        message = (
            f"the request is not a valid {descriptor.full_name}: {problem}; "
            "send a message of this service's version of the contract"
        )
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message, field=field)


def too_large(message: Message, num_bytes: int, max_bytes: int) -> Refusal:
    """The refusal of a message beyond the limit; names its largest field."""
    sizes = {}
    for field, _ in message.ListFields():
        rest = type(message)()
        rest.CopyFrom(message)
        rest.ClearField(field.name)
        sizes[field.name] = num_bytes - rest.ByteSize()
    name = max(sizes, key=sizes.__getitem__, default="")
    return Refusal(
        grpc.StatusCode.INVALID_ARGUMENT,
        f"{name or 'the request'} is too large: the request has {num_bytes} bytes, {sizes.get(name, 0)} of them there, and "
        f"at most {max_bytes} are taken; shorten it",
        field=name,
    )


def invalid_text(data: bytes, descriptor: Descriptor) -> str:
    """Path of the first text field that is not UTF-8, for instance `sampling.stop[1]`.

    Empty if there is none, or the bytes are no fields at all.
    """
    seen = Counter[int]()
    for number, value in _contents(data):
        field = descriptor.fields_by_number.get(number)
        if field is None:
            continue
        path = f"{field.name}[{seen[number]}]" if _is_repeated(field) else field.name
        seen[number] += 1
        if field.type == FieldDescriptor.TYPE_STRING and not _is_text(value):
            return path
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
            inner = invalid_text(value, field.message_type)
            if inner:
                return f"{path}.{inner}"
    return ""


def _contents(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field that has a length: to a message without fields all of them are unknown."""
    try:
        fields = UnknownFieldSet(empty_pb2.Empty.FromString(data))
    except DecodeError:
        return
    for index in range(len(fields)):
        field = fields[index]
        if isinstance(field.data, bytes):
            yield field.field_number, field.data


def _is_repeated(field: FieldDescriptor) -> bool:
    either: Any = field  # protobuf before 6 has a label instead
    if hasattr(either, "is_repeated"):
        return bool(either.is_repeated)
    return bool(either.label == either.LABEL_REPEATED)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
