"""Names that a client gives: of the request, and of the model."""

from __future__ import annotations

import re

import grpc

from outrider.cluster.status_codes import Refusal
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, shown

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def check_request_id(request_id: str) -> None:
    """Refuses a name that is no name. Empty is fine: the service makes one."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise invalid(
            "request_id",
            f"must be at most 128 characters of [A-Za-z0-9._:-], got {shown(request_id)}",
        )


def check_model(model: str, limits: Limits) -> None:
    """Refuses a model that is not served. Empty means the one that is."""
    if model and model != limits.model:
        raise Refusal(
            grpc.StatusCode.NOT_FOUND,
            f"model {shown(model)} is not served here; known models: {limits.model!r}",
            field="model",
        )
