"""Errors that the client raises, by cause.

    OutriderError
    ├── InvalidRequest      the request is wrong: change it
    ├── NotFound            no such model, drafter or method
    ├── ModelExchanged      another model serves now than the one that began the text: ask for the whole again
    ├── AlreadyRunning      a request of this id is running: take another id, or abort it
    ├── Overloaded          the service stayed full for as long as the client may wait
    ├── Unavailable         nobody answers, or the stream broke: try again
    ├── DeadlineExceeded    the timeout passed
    ├── Cancelled           the request was cancelled
    ├── Unauthorized        a token or certificate is missing or refused, or only one side speaks TLS
    └── ServiceError        the service failed

`ERROR_BY_CODE` says which gRPC status becomes which error; `ModelExchanged` is FAILED_PRECONDITION that names `model_fingerprint`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

_DETAILS_KEY = "grpc-status-details-bin"
"""Metadata key under which gRPC sends a `google.rpc.Status` with details."""

_QUEUED_KEY = "outrider-queued"
"""Key of the initial metadata by which the service tells that a request waits for its turn."""


class OutriderError(Exception):
    """The base of every error this package raises on purpose.

    Attributes:
        message: What happened and what to do.
        code: The gRPC status it came from, None if the client found the fault itself.
        request_id: The request it belongs to, if there is one.
        retry_after_s: Seconds the service advises to wait before another try, if it said so.
        field: The field of the request that is wrong, for instance `sampling.top_p`, if it is known.
        received_tokens: Output tokens that arrived before the error, for a later `resume`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        field: str | None = None,
        received_tokens: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.field = field
        self.received_tokens = received_tokens


class InvalidRequest(OutriderError, ValueError):
    """The request is wrong; sending it again cannot help."""


class NotFound(OutriderError):
    """The service has no such model, drafter or method."""


class AlreadyRunning(OutriderError):
    """A request with this `request_id` is running."""


class ModelExchanged(OutriderError):
    """Another model serves now than the one that began the text, or than the one asked for; no text of two models is made.

    `received_tokens` holds what the former one said. Without `model_fingerprint` the request can be sent again, for a whole text of the
    model that serves now.
    """


class Overloaded(OutriderError):
    """The service had no room within the client's patience and the request's timeout; it advises `retry_after_s` more."""


class Unavailable(OutriderError):
    """Nobody answers at the address, or the stream broke and could not be resumed."""


class DeadlineExceeded(OutriderError, TimeoutError):
    """The timeout passed before the work was done."""


class Cancelled(OutriderError):
    """The request was cancelled, by this side or by the service."""


@contextmanager
def closing_told(error: Callable[[], Cancelled]) -> Iterator[None]:
    """Around the wait for a call that another task may cancel, or whose client it may close.

    gRPC ends such a wait as a cancellation of the task that waits would.

    Args:
        error: Makes what is raised then.

    Raises:
        Cancelled: The call was ended so. A cancellation of the task itself is passed on.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise error() from None


class Unauthorized(OutriderError):
    """A token or a certificate is missing or refused, or only one side speaks TLS."""


class ServiceError(OutriderError):
    """The service failed in a way that the request did not cause."""


ERROR_BY_CODE: Mapping[grpc.StatusCode, type[OutriderError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.UNIMPLEMENTED: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyRunning,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.ABORTED: Cancelled,
    grpc.StatusCode.UNAUTHENTICATED: Unauthorized,
    grpc.StatusCode.PERMISSION_DENIED: Unauthorized,
    grpc.StatusCode.INTERNAL: ServiceError,
    grpc.StatusCode.DATA_LOSS: ServiceError,
    grpc.StatusCode.UNKNOWN: ServiceError,
}
"""The error of each gRPC status but OK."""


def from_rpc_error(error: grpc.RpcError, *, request_id: str | None = None) -> OutriderError:
    """Translates what gRPC raised, with the details that the service attached.

    Args:
        error: From a blocking or an asyncio call; both offer `code`, `details` and `trailing_metadata`.
        request_id: The request that failed.
    """
    code = error.code()
    text = error.details() or f"the call ended with status {code.name}"
    kind = ERROR_BY_CODE.get(code, ServiceError)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"the timeout passed before the answer was complete ({text})"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        # gRPC itself refuses a message beyond the size limit with the status of an overload, but waiting cannot help.
        kind = InvalidRequest
    field, retry_after_s = _details(error)
    if code is grpc.StatusCode.FAILED_PRECONDITION and field == "model_fingerprint":
        kind = ModelExchanged
    return kind(text, code=code, request_id=request_id, retry_after_s=retry_after_s, field=field)


def broke_in_queue(error: grpc.RpcError) -> bool:
    """Whether a call broke while its request waited in the queue of a service, which itself did not end it.

    Args:
        error: As of `from_rpc_error`; both kinds offer `initial_metadata`, too.
    """
    # As of the trailing metadata, which the stubs have.
    told = cast(Iterable[tuple[str, str]], cast(Any, error).initial_metadata() or ())
    return any(key == _QUEUED_KEY for key, _ in told) and _details(error)[1] is None


def _details(error: grpc.RpcError) -> tuple[str | None, float | None]:
    """The first field violation and the retry advice among the error's rich details."""
    field: str | None = None
    retry_after_s: float | None = None
    # The stubs type one entry for the whole; blocking and asyncio calls both give pairs.
    metadata = cast(Iterable[tuple[str, bytes]], error.trailing_metadata() or ())
    for key, value in metadata:
        if key != _DETAILS_KEY:
            continue
        status = status_pb2.Status()
        try:
            status.ParseFromString(value)
        except DecodeError:
            continue  # details only add to the status, which is known already
        for detail in status.details:
            violations, advice = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
            if detail.Unpack(violations) and violations.field_violations:
                field = field or violations.field_violations[0].field or None
            elif detail.Unpack(advice):
                retry_after_s = advice.retry_delay.ToNanoseconds() / 1e9
    return field, retry_after_s
