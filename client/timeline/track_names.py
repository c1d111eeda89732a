"""What things are called on a timeline."""

from __future__ import annotations

from outrider.v1 import trace_pb2

KINDS: dict[int, str] = {
    trace_pb2.TRACE_KIND_PREFILL: "prefill",
    trace_pb2.TRACE_KIND_VERIFY: "verify",
    trace_pb2.TRACE_KIND_WAIT_CANDIDATES: "waits for candidates",
    trace_pb2.TRACE_KIND_WAIT_RIPENING: "lets a tree grow",
    trace_pb2.TRACE_KIND_NO_SESSION: "no session",
    trace_pb2.TRACE_KIND_DRAFT: "draft",
    trace_pb2.TRACE_KIND_CATCH_UP: "catch up",
    trace_pb2.TRACE_KIND_WAIT_CREDITS: "out of credits",
    trace_pb2.TRACE_KIND_WAIT_VERDICT: "nothing left to draft",
    trace_pb2.TRACE_KIND_WAIT_TOKENS: "waits for missing tokens",
    trace_pb2.TRACE_KIND_REST: "sent to rest",
    trace_pb2.TRACE_KIND_HOLD: "holds candidates",
    trace_pb2.TRACE_KIND_TAKEN: "candidates",
    trace_pb2.TRACE_KIND_TOKENISE: "tokenise",
    trace_pb2.TRACE_KIND_QUEUE: "queue",
    trace_pb2.TRACE_KIND_OPEN: "open",
    trace_pb2.TRACE_KIND_DETOKENISE: "detokenise",
    trace_pb2.TRACE_KIND_WRITE: "write",
}
"""Kinds of records."""

BETWEEN = "between passes"
"""What remains of a worker's time: taking messages in, planning, sending, and not getting the processor."""

BUSY = ("prefill", "verify", "draft", "catch up")
"""Names of slices in which a worker did what it is there for."""

WAITS_AT_TARGET = ("waits for candidates", "lets a tree grow")
"""Names of slices in which a target waited for drafters."""

FATES: dict[int, str] = {
    trace_pb2.NODE_FATE_ACCEPTED: "accepted",
    trace_pb2.NODE_FATE_REJECTED: "rejected",
    trace_pb2.NODE_FATE_FORESEEN: "foreseen",
    trace_pb2.NODE_FATE_NEVER_CHOSEN: "never chosen",
}
"""Fates of candidate nodes."""
