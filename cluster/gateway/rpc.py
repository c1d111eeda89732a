"""`GenerationService` for a gRPC server: bytes are parsed, and every refusal becomes the call's status, in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog
from google.protobuf import message_factory

from outrider.cluster.gateway.gateway import Context, Gateway
from outrider.cluster.gateway.malformed import parser
from outrider.cluster.requests.chunk_bytes import serialised
from outrider.cluster.validation.status_codes import Refusal, trailing_metadata
from outrider.v1 import generation_pb2

log = structlog.get_logger(__name__)


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
