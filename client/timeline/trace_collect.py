"""What a trace's messages hold, put together: spans by source, clocks, how it ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.client.timeline.clock import ClockOffset, ClockReading
from outrider.v1 import trace_pb2


@dataclass(slots=True, kw_only=True)
class Gathered:
    """What came of one source."""

    source: trace_pb2.TraceSource
    spans: list[trace_pb2.TraceSpan] = field(default_factory=list)
    readings: list[ClockReading] = field(default_factory=list)
    until_ns: int = 0
    num_lost: int = 0
    current: trace_pb2.TraceSpan | None = None
    """What its worker was doing at `until_ns`."""

    gone: str = ""

    @property
    def clock(self) -> ClockOffset:
        """Its clock."""
        return ClockOffset(self.readings)


class TraceCollector:
    """Takes the messages of one trace."""

    def __init__(self) -> None:
        self.started = trace_pb2.TraceStarted()
        self.ended = ""
        self.end_ns: int | None = None
        """By the coordinator's clock; None as long as it has not told."""
        self.sources: dict[int, Gathered] = {}

    def add(self, response: trace_pb2.TraceResponse) -> None:
        """Takes one message in; what this version does not know is left out."""
        event = response.WhichOneof("event")
        if event == "started":
            self.started = response.started
            return
        if event == "ended":
            self.ended, self.end_ns = response.ended.reason, response.ended.clock_ns
            return
        if event == "source":
            source = response.source
            self.sources[response.number] = Gathered(source=source, until_ns=source.start_ns)
            return
        gathered = self.sources.get(response.number)
        if gathered is None:
            return
        match event:
            case "records":
                batch = response.records
                gathered.spans.extend(batch.spans)
                gathered.until_ns = max(gathered.until_ns, batch.until_ns)
                gathered.num_lost = batch.lost
                gathered.current = batch.current if batch.HasField("current") else None
            case "reading":
                reading = response.reading
                gathered.readings.append(
                    ClockReading(
                        asked_ns=reading.asked_ns,
                        received_ns=reading.received_ns,
                        answered_ns=reading.answered_ns,
                        returned_ns=reading.returned_ns,
                    )
                )
            case "source_lost":
                gathered.gone = response.source_lost

    @property
    def num_records(self) -> int:
        """Spans so far."""
        return sum(len(gathered.spans) for gathered in self.sources.values())
