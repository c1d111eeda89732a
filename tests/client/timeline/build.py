"""Making the messages of a trace, and slices, with few words."""

from __future__ import annotations

from typing import Any

from outrider.client.timeline.assemble import assemble
from outrider.client.timeline.timeline_model import Slice, Timeline
from outrider.client.timeline.trace_collect import TraceCollector
from outrider.v1 import trace_pb2

MS = 1_000_000
"""Nanoseconds of a millisecond."""

START_NS = 10_000 * MS
"""The coordinator's clock at time 0."""


def record(kind: str, start_ms: float, ms: float = 0.0, **fields: Any) -> trace_pb2.TraceRecord:
    """A record; times by the actor's clock, counted from the coordinator's time 0."""
    return trace_pb2.TraceRecord(
        kind=trace_pb2.TraceKind.Value(f"TRACE_KIND_{kind}"),
        start_ns=START_NS + round(start_ms * MS),
        duration_ns=round(ms * MS),
        **fields,
    )


def message(
    number: int, *, to_target: bool = True, what: str = "candidates", size: int = 50
) -> Any:
    """What names a message of the drafter `d`."""
    return trace_pb2.TraceMessage(
        drafter="d",
        incarnation=3,
        stream=1,
        number=number,
        to_target=to_target,
        what=what,
        bytes=size,
    )


class Made:
    """A trace in the making."""

    def __init__(self) -> None:
        started = trace_pb2.TraceStarted(clock_ns=START_NS, unix_ns=5_000_000_000, version="9")
        self.responses = [trace_pb2.TraceResponse(started=started)]
        """As a service would send them."""
        self._count = 0

    def source(
        self,
        name: str,
        role: str,
        *records: trace_pb2.TraceRecord,
        until_ms: float = 100.0,
        current: str = "UNSPECIFIED",
        current_since_ms: float = 0.0,
        ahead_ms: float = 0.0,
        lost: int = 0,
        gone: str = "",
        incarnation: int = 1,
    ) -> None:
        """Adds a source, whose clock is `ahead_ms` ahead, read with a way of 0.2 ms there and back."""
        number, self._count = self._count, self._count + 1
        start_ns = START_NS + round(ahead_ms * MS)
        self._add(
            number,
            source=trace_pb2.TraceSource(
                name=name, role=role, incarnation=incarnation, pid=7, start_ns=start_ns
            ),
        )
        if role != "coordinator":
            self._add(
                number,
                reading=trace_pb2.ClockReading(
                    asked_ns=START_NS,
                    received_ns=start_ns + MS // 10,
                    answered_ns=start_ns + MS // 10,
                    returned_ns=START_NS + MS // 5,
                ),
            )
        self._add(
            number,
            records=trace_pb2.TraceRecords(
                records=records,
                until_ns=start_ns + round(until_ms * MS),
                lost=lost,
                current=trace_pb2.TraceKind.Value(f"TRACE_KIND_{current}"),
                current_since_ns=start_ns + round(current_since_ms * MS),
            ),
        )
        if gone:
            self._add(number, source_lost=gone)

    def end(self, *, end_ms: float = 100.0) -> list[trace_pb2.TraceResponse]:
        """All messages, the last included."""
        ended = trace_pb2.TraceEnded(reason="time", clock_ns=START_NS + round(end_ms * MS))
        return [*self.responses, trace_pb2.TraceResponse(ended=ended)]

    def timeline(self, *, end_ms: float = 100.0, request_id: str = "") -> Timeline:
        """The timeline of all of it."""
        collector = TraceCollector()
        for response in self.end(end_ms=end_ms):
            collector.add(response)
        return assemble(collector, request_id=request_id)

    def _add(self, number: int, **event: Any) -> None:
        self.responses.append(trace_pb2.TraceResponse(number=number, **event))


def slice_(start_us: float, us: float, name: str = "verify", **fields: Any) -> Slice:
    """A slice of a target's worker."""
    values = {"process": "target", "track": "passes", **fields}
    return Slice(name=name, start_us=start_us, duration_us=us, **values)


def service() -> Made:
    """A tenth of a second of a coordinator, a target and a drafter, with two requests and a known answer to each question.

    The target's clock is 40 ms ahead, the drafter's 7 s behind.
    """
    fates = trace_pb2.TraceFates(drafter="d", accepted=2, rejected=1, foreseen=1, never_chosen=1)
    nodes = [
        trace_pb2.TraceNode(drafter="d", depth=1, estimate=0.5, fate=trace_pb2.NODE_FATE_ACCEPTED),
        trace_pb2.TraceNode(drafter="d", depth=2, estimate=0.25, fate=trace_pb2.NODE_FATE_REJECTED),
    ]
    made = Made()
    made.source(
        "c",
        "coordinator",
        record("TOKENISE", 10, 1, request=1, name="one", tokens=4),
        record("QUEUE", 11, 2, request=1, name="one"),
        record(
            "OPEN",
            13,
            2,
            request=1,
            name="one",
            target="t",
            incarnation=1,
            parts=[trace_pb2.TracePart(handle=5)],
        ),
        record(
            "OPEN",
            13,
            2,
            request=2,
            name="two",
            target="t",
            incarnation=1,
            parts=[trace_pb2.TracePart(handle=6)],
        ),
        record("DETOKENISE", 30, 0.1, request=1, name="one", tokens=1),
        record("WRITE", 31, 0.2, request=1, name="one", tokens=1),
        record("REQUEST", 10, 80, request=1, name="one", outcome="completed", tokens=4),
        record("REQUEST", 12, 70, request=2, name="two", outcome="running"),
    )
    part = trace_pb2.TracePart
    t = 40.0
    made.source(
        "t",
        "target",
        record("NO_SESSION", t + 0, 15),
        record("PREFILL", t + 15, 10, rows=8, parts=[part(handle=5, committed=1)]),
        record("PREFILL", t + 25, 10, rows=8, parts=[part(handle=6, committed=1)]),
        record("WAIT_CANDIDATES", t + 36, 4),
        record("RECEIVED", t + 41, message=message(1), parts=[part(handle=5, nodes=6)]),
        record(
            "TAKEN",
            t + 41,
            2,
            message=message(1),
            parts=[part(handle=5, nodes=6, fresh=5, stale=1)],
        ),
        record(
            "VERIFY",
            t + 44,
            20,
            rows=5,
            model_ns=15 * MS,
            parts=[
                part(handle=5, nodes=3, depth=2, committed=3, fates=[fates], decided=nodes),
                part(handle=6, committed=1),
            ],
        ),
        record(
            "SENT",
            t + 65,
            message=message(1, to_target=False, what="verdicts", size=20),
            parts=[part(handle=5, committed=3)],
        ),
        until_ms=100,
        current="NO_SESSION",
        current_since_ms=90,
        ahead_ms=t,
    )
    d = -7000.0
    made.source(
        "d",
        "drafter",
        record("CATCH_UP", d + 16, 4, parts=[]),
        record("DRAFT", d + 20, 10, parts=[part(handle=5, nodes=6)]),
        record("HOLD", d + 30, 10, parts=[part(handle=5, nodes=6)]),
        record("SENT", d + 40, message=message(1), parts=[part(handle=5, nodes=6)]),
        record("WAIT_CREDITS", d + 40, 25),
        record(
            "RECEIVED",
            d + 66.5,
            message=message(1, to_target=False, what="verdicts", size=20),
            parts=[part(handle=5, committed=3)],
        ),
        until_ms=100,
        current="WAIT_VERDICT",
        current_since_ms=70,
        ahead_ms=d,
        lost=2,
        incarnation=3,
    )
    return made
