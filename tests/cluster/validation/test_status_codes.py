"""Refusals and statuses."""

from __future__ import annotations

import pickle

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no stubs

from outrider.cluster.validation.status_codes import (
    DETAILS_KEY,
    MAX_MESSAGE_BYTES,
    PUSHBACK_KEY,
    Refusal,
    code_of,
    trailing_metadata,
)


def test_every_status_survives_the_wire() -> None:
    """Number and code map to each other; what is no error code is UNKNOWN."""
    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            assert code_of(code.value[0]) is code
    assert code_of(0) is grpc.StatusCode.UNKNOWN
    assert code_of(99) is grpc.StatusCode.UNKNOWN


def test_details_name_the_field_and_the_pause() -> None:
    """Field and retry advice travel as rich details, and the pause also as gRPC's own push-back."""
    refusal = Refusal(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "full", field="request_id", retry_after_s=1.5
    )
    metadata = dict(trailing_metadata(refusal))
    assert metadata[PUSHBACK_KEY] == "1500"
    status = status_pb2.Status.FromString(metadata[DETAILS_KEY])
    assert (status.code, status.message) == (8, "full")
    bad_request, retry_info = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(bad_request)
    assert status.details[1].Unpack(retry_info)
    assert bad_request.field_violations[0].field == "request_id"
    assert retry_info.retry_delay.ToMilliseconds() == 1500


def test_a_plain_refusal_has_no_details() -> None:
    """Nothing is sent that says nothing."""
    assert trailing_metadata(Refusal(grpc.StatusCode.INTERNAL, "broken")) == ()


def test_a_refusal_can_be_pickled() -> None:
    """It crosses processes whole."""
    refusal = Refusal(grpc.StatusCode.NOT_FOUND, "no such model", field="model")
    copy = pickle.loads(pickle.dumps(refusal))
    assert (copy.code, copy.message, copy.field) == (refusal.code, refusal.message, refusal.field)


def test_a_message_fits_into_the_trailers() -> None:
    """gRPC breaks the stream where a status is larger than its limit; what is cut says so."""
    refusal = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "field " + "🙂" * 50_000, field="field")
    assert len(refusal.message.encode()) <= MAX_MESSAGE_BYTES
    assert refusal.message.startswith("field 🙂")
    assert refusal.message.endswith("🙂...")
    assert str(refusal) == refusal.message
    assert sum(len(value) for _, value in trailing_metadata(refusal)) < 3 * MAX_MESSAGE_BYTES
    assert Refusal(grpc.StatusCode.INTERNAL, "lone \ud800" * 300).message.isascii()
