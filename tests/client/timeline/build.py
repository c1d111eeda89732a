"""Making the messages of a trace, and slices, with few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.client.timeline.assemble import assemble
from outrider.client.timeline.timeline_model import Slice, Timeline
from outrider.client.timeline.trace_collect import TraceCollector
from outrider.v1 import trace_pb2

MS = 1_000_000
"""Nanoseconds of a millisecond."""

START_NS = 10_000 * MS
"""The coordinator's clock at time 0."""


def args_of(values: Mapping[str, Any]) -> trace_pb2.TraceArgs:
    """Arguments as a message."""
    return trace_pb2.TraceArgs(
        numbers={name: value for name, value in values.items() if isinstance(value, int | float)},
        words={name: value for name, value in values.items() if isinstance(value, str)},
        groups={name: args_of(value) for name, value in values.items() if isinstance(value, dict)},
    )


def span(
    name: str, start_ms: float, ms: float = 0.0, *, track: str = "passes", **fields: Any
) -> trace_pb2.TraceSpan:
    """A span; times by the actor's clock, counted from the coordinator's time 0. `args` as a dictionary."""
    return trace_pb2.TraceSpan(
        name=name,
        track=track,
        start_ns=START_NS + round(start_ms * MS),
        duration_ns=round(ms * MS),
        **{**fields, "args": args_of(fields.get("args", {}))},
    )


def drafting(name: str, start_ms: float, ms: float, **args: Any) -> trace_pb2.TraceSpan:
    """What a drafter's worker did."""
    return span(name, start_ms, ms, track="drafting", args=args)


def of_request(
    number: int,
    named: str,
    name: str,
    start_ms: float,
    ms: float,
    *,
    track: str = "",
    opened: int | None = None,
    **args: Any,
) -> trace_pb2.TraceSpan:
    """What a coordinator did for a request; `opened` is the handle of a session at the target `t`."""
    made = span(name, start_ms, ms, track=track, args=args)
    made.owner.request, made.owner.name = number, named
    if opened is not None:
        made.args.words["target"] = "t"
        made.opened.target, made.opened.incarnation, made.opened.handle = "t", 1, opened
    return made


def message(
    number: int,
    start_ms: float,
    *,
    is_received: bool = False,
    up: bool = True,
    handles: tuple[int, ...] = (),
    nodes: int = 0,
    committed: int = 0,
) -> trace_pb2.TraceSpan:
    """An end of a message of the drafter `d`: of candidates, or of verdicts if it goes down."""
    return span(
        "candidates" if up else "verdicts",
        start_ms,
        track="received" if is_received else "sent",
        args={
            "sessions": len(handles),
            "nodes": nodes,
            "committed": committed,
            "bytes": 50 if up else 20,
            "drafter": "d",
            "number": number,
        },
        handles=handles,
        flow=trace_pb2.TraceFlow(
            id=f"d 3 1 {'up' if up else 'down'} {number}", is_received=is_received
        ),
    )


def share(
    handle: int, *, marks: Sequence[trace_pb2.TraceMark] = (), **args: Any
) -> trace_pb2.TraceShare:
    """One session's share of a pass."""
    given = {"nodes": 0, "depth": 0, "committed": 0, **args}
    return trace_pb2.TraceShare(handle=handle, args=args_of(given), marks=marks)


class Made:
    """A trace in the making."""

    def __init__(self) -> None:
        started = trace_pb2.TraceStarted(
            clock_ns=START_NS, unix_ns=5_000_000_000, version="9", emulated="h100-8b"
        )
        self.responses = [trace_pb2.TraceResponse(started=started)]
        """As a service would send them."""
        self._count = 0

    def source(
        self,
        name: str,
        role: str,
        *spans: trace_pb2.TraceSpan,
        until_ms: float = 100.0,
        current: trace_pb2.TraceSpan | None = None,
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
                spans=spans,
                until_ns=start_ns + round(until_ms * MS),
                lost=lost,
                current=current,
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
    fates = {"accepted": 2, "rejected": 1, "foreseen": 1, "never_chosen": 1}
    nodes = [
        trace_pb2.TraceMark(
            name=name, args=args_of({"drafter": "d", "depth": depth, "estimate": estimate})
        )
        for name, depth, estimate in (("accepted", 1, 0.5), ("rejected", 2, 0.25))
    ]
    made = Made()
    made.source(
        "c",
        "coordinator",
        of_request(1, "one", "tokenise", 10, 1, tokens=4),
        of_request(1, "one", "queue", 11, 2),
        of_request(1, "one", "open", 13, 2, opened=5),
        of_request(2, "two", "open", 13, 2, opened=6),
        of_request(1, "one", "detokenise", 30, 0.1, track="detokenise", tokens=1),
        of_request(1, "one", "write", 31, 0.2, track="write", tokens=1),
        of_request(1, "one", "request 1", 10, 80, outcome="completed", tokens=4),
        of_request(2, "two", "request 2", 12, 70, outcome="running"),
    )
    t = 40.0
    first = {"sessions": 1, "rows": 8, "nodes": 0, "committed": 1, "model_us": 0}
    first |= dict.fromkeys(fates, 0)
    made.source(
        "t",
        "target",
        span("no session", t + 0, 15),
        span("prefill", t + 15, 10, args=first, shares=[share(5, committed=1)]),
        span("prefill", t + 25, 10, args=first, shares=[share(6, committed=1)]),
        span("waits for candidates", t + 36, 4),
        message(1, t + 41, is_received=True, handles=(5,), nodes=6),
        span(
            "candidates",
            t + 41,
            2,
            track="waiting to be taken in",
            args={"drafter": "d", "number": 1, "nodes": 6, "fresh": 5, "stale": 1, "refused": 0},
            handles=[5],
        ),
        span(
            "verify",
            t + 44,
            20,
            args={
                "sessions": 2,
                "rows": 5,
                "nodes": 3,
                "committed": 4,
                "model_us": 15_000,
                **fates,
            },
            shares=[
                share(5, nodes=3, depth=2, committed=3, fates={"d": fates}, marks=nodes),
                share(6, committed=1),
            ],
        ),
        message(1, t + 65, up=False, handles=(5,), committed=3),
        until_ms=100,
        current=span("no session", t + 90),
        ahead_ms=t,
    )
    d = -7000.0
    made.source(
        "d",
        "drafter",
        drafting("catch up", d + 16, 4),
        drafting("draft", d + 20, 10, sessions=1, tree_nodes=6),
        span("holds candidates", d + 30, 10, track="holding", args={"nodes": 6}, handles=[5]),
        message(1, d + 40, handles=(5,), nodes=6),
        drafting("out of credits", d + 40, 25),
        message(1, d + 66.5, is_received=True, up=False, handles=(5,), committed=3),
        until_ms=100,
        current=drafting("nothing left to draft", d + 70, 0),
        ahead_ms=d,
        lost=2,
        incarnation=3,
    )
    return made
