"""Names that a client gives: of the request, and of the model; and which model it must be."""

from __future__ import annotations

import re
from collections.abc import Sequence

import grpc

from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, shown
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import generation_pb2

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def check_request_id(request_id: str) -> None:
    """Refuses a name that is no name. Empty is fine: the service makes one."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise invalid(
            "request_id",
            f"must be at most 128 characters of [A-Za-z0-9._:-], got {shown(request_id)}",
        )


def exchanged(wanted: str, *, model: str, fingerprint: str) -> Refusal:
    """The refusal of a request for another model than the one that is served, whatever its name.

    Args:
        wanted: Fingerprint of the one that is asked for.
        model: Name of the one that is served.
        fingerprint: Of the one that is served.
    """
    return Refusal(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"model_fingerprint asks for a model {shown(wanted[:12])}, but {model!r} is {shown(fingerprint[:12])}: the model "
        "was exchanged. A text goes on at the model that began it, or is asked for again without model_fingerprint",
        field="model_fingerprint",
    )


def check_fingerprint(request: generation_pb2.GenerateRequest, limits: Limits) -> None:
    """Refuses a request for another model than the one served, and a text to go on with that does not say whose it is."""
    wanted = request.model_fingerprint
    if not wanted and request.HasField("resume") and limits.fingerprint:
        raise invalid(
            "resume", "needs model_fingerprint: give the one that the first stream's admission told"
        )
    if wanted and wanted != limits.fingerprint:
        raise exchanged(wanted, model=limits.model, fingerprint=limits.fingerprint)


def check_model(model: str, limits: Limits, *, known: Sequence[str]) -> None:
    """Refuses a model that is not served. Empty means the only or first one that is."""
    if model and model != limits.model:
        raise Refusal(
            grpc.StatusCode.NOT_FOUND,
            f"model {shown(model)} is not served here; known models: {', '.join(map(repr, known))}",
            field="model",
        )
