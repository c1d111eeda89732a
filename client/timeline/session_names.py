"""Which request a session at a target belongs to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from outrider.v1 import trace_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """One sequence of a request."""

    request: int
    index: int
    name: str

    @property
    def label(self) -> str:
        """As the timeline calls it."""
        part = f".{self.index}" if self.index else ""
        return f"request {self.request}{part} {self.name}"


class SessionNames:
    """Sessions by target, its start, and handle."""

    def __init__(self, records: Iterable[trace_pb2.TraceRecord]) -> None:
        """Args:
        records: The coordinator's.
        """
        self._owners: dict[tuple[str, int, int], SessionRequest] = {}
        for record in records:
            if record.kind == trace_pb2.TRACE_KIND_OPEN:
                owner = SessionRequest(request=record.request, index=record.index, name=record.name)
                for part in record.parts:
                    self._owners[record.target, record.incarnation, part.handle] = owner
        self.handles = frozenset(handle for _, _, handle in self._owners)
        """Every handle that is known, of whichever target."""

    def owner(self, target: str, incarnation: int, handle: int) -> SessionRequest | None:
        """Whose a session is; None if its request is not known."""
        return self._owners.get((target, incarnation, handle))
