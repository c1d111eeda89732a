"""From the records of one actor to slices on its tracks. Pure."""

from __future__ import annotations

from typing import Any

from outrider.client.timeline import coordinator_slices
from outrider.client.timeline.arrows import Ends, key_of
from outrider.client.timeline.session_names import SessionNames, SessionRequest
from outrider.client.timeline.timeline_model import DRAFTING, REQUESTS, WORK, Mark, Slice
from outrider.client.timeline.trace_collect import Gathered
from outrider.client.timeline.track_names import FATES, KINDS
from outrider.v1 import trace_pb2

TICK_US = 1.0
"""Length of the slice of an instant that an arrow begins or ends at: viewers tie arrows to slices."""

_FATE_FIELDS = ("accepted", "rejected", "foreseen", "never_chosen")


class Converter:
    """Turns the records of one source into slices."""

    def __init__(
        self,
        gathered: Gathered,
        *,
        process: str,
        origin_ns: int,
        sessions: SessionNames,
        is_scoped: bool,
        ends: Ends,
    ) -> None:
        """Args:
        gathered: The records.
        process: What the source is called.
        origin_ns: Time 0, by the coordinator's clock.
        sessions: Which session is whose.
        is_scoped: Sessions of other requests are left out.
        ends: Takes the ends of messages.
        """
        self.slices: list[Slice] = []
        self.marks: list[Mark] = []
        self._gathered = gathered
        self._clock = gathered.clock
        self._process = process
        self._origin_ns = origin_ns
        self._sessions = sessions
        self._is_scoped = is_scoped
        self._ends = ends
        self.start_us = self._when(gathered.source.start_ns)
        self.end_us = self._when(gathered.until_ns)

    def run(self) -> None:
        """Converts everything."""
        role = self._gathered.source.role
        for record in self._gathered.records:
            match record.kind:
                case trace_pb2.TRACE_KIND_SENT | trace_pb2.TRACE_KIND_RECEIVED:
                    self._message(record)
                case trace_pb2.TRACE_KIND_TAKEN:
                    self._taken(record)
                case trace_pb2.TRACE_KIND_PREFILL | trace_pb2.TRACE_KIND_VERIFY:
                    self._pass(record)
                case trace_pb2.TRACE_KIND_HOLD:
                    self._hold(record)
                case _ if role == "coordinator":
                    coordinator_slices.convert(record, self._make)
                case _:
                    self._worker(record)
        self._unfinished()

    def _when(self, time_ns: int) -> float:
        return round((self._clock.to_ours(time_ns) - self._origin_ns) / 1e3, 3)

    def _make(
        self,
        record: trace_pb2.TraceRecord,
        track: str,
        args: dict[str, Any],
        *,
        process: str = "",
        name: str = "",
    ) -> Slice:
        start_us = self._when(record.start_ns)
        end_us = self._when(record.start_ns + record.duration_ns)
        made = Slice(
            process=process or self._process,
            track=track,
            name=name or KINDS.get(record.kind, f"kind {record.kind}"),
            start_us=start_us,
            duration_us=round(max(end_us - start_us, 0.0), 3),
            args=args,
        )
        self.slices.append(made)
        return made

    def _is_wanted(self, record: trace_pb2.TraceRecord) -> bool:
        """Whether it is about a session that is to be shown. At a drafter a handle says nothing of the target."""
        if not self._is_scoped:
            return True
        source = self._gathered.source
        if source.role != "target":
            return any(part.handle in self._sessions.handles for part in record.parts)
        return any(self._owner(part.handle) is not None for part in record.parts)

    def _owner(self, handle: int) -> SessionRequest | None:
        source = self._gathered.source
        return self._sessions.owner(source.name, source.incarnation, handle)

    # -- workers -----------------------------------------------------------------------------------------------------

    def _worker(self, record: trace_pb2.TraceRecord) -> None:
        is_drafter = self._gathered.source.role == "drafter"
        args: dict[str, Any] = {}
        if record.parts:
            args["sessions"] = len(record.parts)
            args["tree_nodes"] = sum(part.nodes for part in record.parts)
        self._make(record, DRAFTING if is_drafter else WORK, args)

    def _unfinished(self) -> None:
        """What the worker was doing when its last records left: so much of it as is known."""
        gathered = self._gathered
        lasted_ns = gathered.until_ns - gathered.current_since_ns
        if gathered.current != trace_pb2.TRACE_KIND_UNSPECIFIED and lasted_ns > 0:
            record = trace_pb2.TraceRecord(
                start_ns=gathered.current_since_ns, duration_ns=lasted_ns
            )
            record.kind = gathered.current  # type: ignore[assignment]  # a number that came as a kind
            self._worker(record)

    def _hold(self, record: trace_pb2.TraceRecord) -> None:
        if self._is_wanted(record):
            nodes = sum(part.nodes for part in record.parts)
            self._make(record, "holding", {"nodes": nodes})

    def _pass(self, record: trace_pb2.TraceRecord) -> None:
        parts = record.parts
        args: dict[str, Any] = {
            "sessions": len(parts),
            "rows": record.rows,
            "nodes": sum(part.nodes for part in parts),
            "committed": sum(part.committed for part in parts),
            "model_us": round(record.model_ns / 1e3, 3),
        }
        for name in _FATE_FIELDS:
            args[name] = sum(getattr(fates, name) for part in parts for fates in part.fates)
        whole = self._make(record, WORK, args)
        for part in parts:
            owner = self._owner(part.handle)
            if owner is not None or not self._is_scoped:
                self._part(record, part, owner, whole.end_us)

    def _part(
        self,
        record: trace_pb2.TraceRecord,
        part: trace_pb2.TracePart,
        owner: SessionRequest | None,
        end_us: float,
    ) -> None:
        label = owner.label if owner is not None else f"session {part.handle}"
        track = f"{label} at {self._process}"
        args: dict[str, Any] = {
            "target": self._process,
            "request": owner.request if owner is not None else 0,
            "nodes": part.nodes,
            "depth": part.depth,
            "committed": part.committed,
        }
        if part.fates:
            args["fates"] = {
                fates.drafter: {name: getattr(fates, name) for name in _FATE_FIELDS}
                for fates in part.fates
            }
        self._make(record, track, args, process=REQUESTS)
        for node in part.decided:
            self.marks.append(
                Mark(
                    process=REQUESTS,
                    track=track,
                    name=FATES.get(node.fate, f"fate {node.fate}"),
                    at_us=end_us,
                    args={
                        "drafter": node.drafter,
                        "depth": node.depth,
                        "estimate": round(node.estimate, 3),
                    },
                )
            )

    # -- messages ----------------------------------------------------------------------------------------------------

    def _message(self, record: trace_pb2.TraceRecord) -> None:
        if not self._is_wanted(record):
            return
        message, is_sent = record.message, record.kind == trace_pb2.TRACE_KIND_SENT
        args: dict[str, Any] = {
            "sessions": len(record.parts),
            "nodes": sum(part.nodes for part in record.parts),
            "committed": sum(part.committed for part in record.parts),
            "bytes": message.bytes,
            "drafter": message.drafter,
            "number": message.number,
        }
        made = Slice(
            process=self._process,
            track="sent" if is_sent else "received",
            name=message.what,
            start_us=self._when(record.start_ns),
            duration_us=TICK_US,
            args=args,
        )
        self.slices.append(made)
        (self._ends.sent if is_sent else self._ends.received)[key_of(message)] = made

    def _taken(self, record: trace_pb2.TraceRecord) -> None:
        if not self._is_wanted(record):
            return
        for part in record.parts:
            args: dict[str, Any] = {
                "drafter": record.message.drafter,
                "number": record.message.number,
                "nodes": part.nodes,
                "fresh": part.fresh,
                "stale": part.stale,
                "refused": part.refused,
            }
            self._make(record, "waiting to be taken in", args)
