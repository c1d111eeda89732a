"""Refusals that name a field, and values as they appear in them."""

from __future__ import annotations

import math

import grpc

from outrider.cluster.validation.status_codes import Refusal


def invalid(field: str, problem: str) -> Refusal:
    """A refusal of a value that no service could take."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{field} {problem}", field=field)


def out_of_range(field: str, problem: str) -> Refusal:
    """A refusal of a value that this model has no room for."""
    return Refusal(grpc.StatusCode.OUT_OF_RANGE, f"{field} {problem}", field=field)


def plain(value: float) -> str:
    """A number as the client wrote it: a float32 is 1.5 rather than 1.50000000, and a whole number has all its digits."""
    return repr(value) if isinstance(value, int) or not math.isfinite(value) else f"{value:.6g}"


def shown(text: str) -> str:
    """A client's text, short enough for a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
