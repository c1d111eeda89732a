"""One end of the stream between a drafter and a target: its messages are numbered, and recorded while someone traces.

gRPC keeps the order of a stream, so both ends give a message the same number, and nothing of it travels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from outrider.actors.exchange import candidates, verdicts
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.tracing.recorder import Arg, Recorder, args_of
from outrider.v1 import target_pb2, trace_pb2

ANY_TOKEN = 1 << 32
"""No token id is as large; what ids there are is not looked at here."""

Message = target_pb2.DrafterMessage | target_pb2.VerdictMessage


class StreamLog:
    """One end of one stream."""

    def __init__(self, recorder: Recorder, hello: target_pb2.Hello) -> None:
        """Args:
        recorder: Of the actor at this end.
        hello: The drafter's, which names the stream.
        """
        self._recorder = recorder
        self._hello = hello
        self._num_sent = 0
        self._num_received = 0

    def sent(self, message: Message) -> None:
        """Notes a message that leaves."""
        self._num_sent += 1
        if self._recorder.is_on:
            self._record("sent", message, self._num_sent)

    def received(self, message: Message) -> trace_pb2.TraceSpan | None:
        """Notes a message that came. Returns what was recorded of it; None if nobody traces."""
        self._num_received += 1
        if not self._recorder.is_on:
            return None
        return self._record("received", message, self._num_received)

    def _record(self, track: str, message: Message, number: int) -> trace_pb2.TraceSpan:
        what, contents = describe(message)
        hello = self._hello
        way = "up" if isinstance(message, target_pb2.DrafterMessage) else "down"
        args: dict[str, Arg] = {
            "sessions": len(contents),
            "nodes": sum(one.nodes for one in contents),
            "committed": sum(one.committed for one in contents),
            "bytes": message.ByteSize(),
            "drafter": hello.name,
            "number": number,
        }
        span = trace_pb2.TraceSpan(
            name=what,
            track=track,
            start_ns=self._recorder.clock_ns(),
            args=args_of(args),
            handles=[one.handle for one in contents],
            flow=trace_pb2.TraceFlow(
                id=f"{hello.name} {hello.incarnation} {hello.stream} {way} {number}",
                is_received=track == "received",
            ),
        )
        self._recorder.add(span)
        return span


class Content(NamedTuple):
    """What a message holds of one session."""

    handle: int
    nodes: int = 0
    """Candidates."""

    committed: int = 0
    """Tokens."""


def describe(message: Message) -> tuple[str, list[Content]]:
    """What a message holds: its kind, and for each session the numbers of nodes and of committed tokens. Of bytes that are no
    frame nothing is said; whoever takes the message in refuses them."""
    kind = message.WhichOneof("message") or ""
    if isinstance(message, target_pb2.DrafterMessage):
        match kind:
            case "candidates":
                batch = message.candidates
                contents = _of_candidates(batch.frame)
                contents += [
                    Content(handle=entry.handle, nodes=len(entry.tokens)) for entry in batch.frozen
                ]
                return kind, contents
            case "resync":
                return kind, [Content(handle=message.resync.handle)]
        return kind, []
    match kind:
        case "verdicts":
            return kind, _of_verdicts(message.verdicts.frame)
        case "resync":
            tokens = len(message.resync.tokens)
            return kind, [Content(handle=message.resync.handle, committed=tokens)]
        case "closed":
            return kind, [Content(handle=message.closed.handle)]
    return kind, []


def _of_candidates(frame: bytes) -> list[Content]:
    if not frame:
        return []
    try:
        found = candidates.decode(frame, ANY_TOKEN)
    except BadFrame:
        return []
    pairs = zip(found.handles_E.tolist(), np.diff(found.starts_E).tolist(), strict=True)
    return [Content(handle=handle, nodes=nodes) for handle, nodes in pairs]


def _of_verdicts(frame: bytes) -> list[Content]:
    try:
        found = verdicts.decode(frame)
    except BadFrame:
        return []
    pairs = zip(found.handles_E.tolist(), np.diff(found.starts_E).tolist(), strict=True)
    return [Content(handle=handle, committed=tokens) for handle, tokens in pairs]
