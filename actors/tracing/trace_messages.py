"""One end of the stream between a drafter and a target: its messages are numbered, and recorded while someone traces.

gRPC keeps the order of a stream, so both ends give a message the same number, and nothing of it travels.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.exchange import candidates, verdicts
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.tracing.recorder import Recorder
from outrider.v1 import target_pb2, trace_pb2

ANY_TOKEN = 1 << 32
"""No token id is as large; what ids there are is not looked at here."""

Message = target_pb2.DrafterMessage | target_pb2.VerdictMessage


class StreamLog:
    """One end of one stream."""

    def __init__(self, recorder: Recorder, hello: target_pb2.Hello, *, target: str = "") -> None:
        """Args:
        recorder: Of the actor at this end.
        hello: The drafter's, which names the stream.
        target: The target's name, at the target's end; empty at the drafter's.
        """
        self._recorder = recorder
        self._hello = hello
        self._target = target
        self._num_sent = 0
        self._num_received = 0

    def sent(self, message: Message) -> None:
        """Notes a message that leaves."""
        self._num_sent += 1
        if self._recorder.is_on:
            self._record(trace_pb2.TRACE_KIND_SENT, message, self._num_sent)

    def received(self, message: Message) -> trace_pb2.TraceMessage | None:
        """Notes a message that came. Returns what names it; None if nobody traces."""
        self._num_received += 1
        if not self._recorder.is_on:
            return None
        return self._record(trace_pb2.TRACE_KIND_RECEIVED, message, self._num_received)

    def _record(
        self, kind: trace_pb2.TraceKind.ValueType, message: Message, number: int
    ) -> trace_pb2.TraceMessage:
        what, parts = describe(message)
        named = trace_pb2.TraceMessage(
            drafter=self._hello.name,
            incarnation=self._hello.incarnation,
            stream=self._hello.stream,
            number=number,
            to_target=isinstance(message, target_pb2.DrafterMessage),
            what=what,
            bytes=message.ByteSize(),
            target=self._target,
        )
        self._recorder.add(
            trace_pb2.TraceRecord(
                kind=kind, start_ns=self._recorder.clock_ns(), parts=parts, message=named
            )
        )
        return named


def describe(message: Message) -> tuple[str, list[trace_pb2.TracePart]]:
    """What a message holds: its kind, and for each session the numbers of nodes and of committed tokens. Of bytes that are no
    frame nothing is said; whoever takes the message in refuses them."""
    kind = message.WhichOneof("message") or ""
    if isinstance(message, target_pb2.DrafterMessage):
        match kind:
            case "candidates":
                batch = message.candidates
                parts = _of_candidates(batch.frame)
                parts += [
                    trace_pb2.TracePart(handle=entry.handle, nodes=len(entry.tree.tokens))
                    for entry in batch.frozen
                ]
                return kind, parts
            case "resync":
                return kind, [trace_pb2.TracePart(handle=message.resync.handle)]
        return kind, []
    match kind:
        case "verdicts":
            return kind, _of_verdicts(message.verdicts.frame)
        case "resync":
            tokens = len(message.resync.tokens)
            return kind, [trace_pb2.TracePart(handle=message.resync.handle, committed=tokens)]
        case "closed":
            return kind, [trace_pb2.TracePart(handle=message.closed.handle)]
    return kind, []


def _of_candidates(frame: bytes) -> list[trace_pb2.TracePart]:
    if not frame:
        return []
    try:
        found = candidates.decode(frame, ANY_TOKEN)
    except BadFrame:
        return []
    pairs = zip(found.handles_E.tolist(), np.diff(found.starts_E).tolist(), strict=True)
    return [trace_pb2.TracePart(handle=handle, nodes=nodes) for handle, nodes in pairs]


def _of_verdicts(frame: bytes) -> list[trace_pb2.TracePart]:
    try:
        found = verdicts.decode(frame)
    except BadFrame:
        return []
    pairs = zip(found.handles_E.tolist(), np.diff(found.starts_E).tolist(), strict=True)
    return [trace_pb2.TracePart(handle=handle, committed=tokens) for handle, tokens in pairs]
