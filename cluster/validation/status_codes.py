"""Refusals and gRPC statuses: one exception, one table of numbers, one form of rich details.

The gateway answers with these; everything below it raises `Refusal` and knows nothing of gRPC calls.
"""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no stubs

BY_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
"""gRPC status codes by their number on the wire."""

RETRYABLE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
"""Answers of a target to a new session after which another try, there or elsewhere, may succeed."""

DETAILS_KEY = "grpc-status-details-bin"
"""Trailing metadata key of the rich status."""

PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Trailing metadata key that tells gRPC's own retry policy when to try again."""


MAX_MESSAGE_BYTES = 1024
"""UTF-8 bytes of a message, at most. It travels in the trailers, escaped and again in the rich details, and gRPC breaks the
stream where trailers exceed 8 kB; a model's own chat template may quote whatever the client wrote."""


class Refusal(Exception):
    """A request that is refused or cannot go on.

    Args:
        code: The gRPC status.
        message: What happened, the values, what to do. Cut where it is longer than `MAX_MESSAGE_BYTES`.
        field: Path of the field at fault, for instance `sampling.top_p`; empty if none is.
        retry_after_s: Seconds after which another try makes sense; None if it does not.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        field: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self.code = code
        self.message = _cut(message)
        super().__init__(code, self.message)
        self.field = field
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.message


def _cut(message: str) -> str:
    data = message.encode(errors="replace")
    if len(data) <= MAX_MESSAGE_BYTES:
        return message
    return data[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "..."


def code_of(number: int) -> grpc.StatusCode:
    """The status code of a number on the wire; UNKNOWN for numbers that gRPC does not have, and for OK."""
    code = BY_NUMBER.get(number, grpc.StatusCode.UNKNOWN)
    return grpc.StatusCode.UNKNOWN if code is grpc.StatusCode.OK else code


def trailing_metadata(refusal: Refusal) -> tuple[tuple[str, str | bytes], ...]:
    """Rich details of a refusal: `google.rpc.BadRequest` and `google.rpc.RetryInfo`, and gRPC's own push-back."""
    details: list[any_pb2.Any] = []
    plain: list[tuple[str, str | bytes]] = []
    if refusal.field:
        bad_request = error_details_pb2.BadRequest()
        violation = bad_request.field_violations.add()
        violation.field, violation.description = refusal.field, refusal.message
        details.append(_pack(bad_request))
    if refusal.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(refusal.retry_after_s * 1e9))
        details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
        plain.append((PUSHBACK_KEY, str(int(refusal.retry_after_s * 1e3))))
    if not details:
        return ()
    status = status_pb2.Status(code=refusal.code.value[0], message=refusal.message, details=details)
    return (*plain, (DETAILS_KEY, status.SerializeToString()))


def _pack(
    message: error_details_pb2.BadRequest | error_details_pb2.RetryInfo,
) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
