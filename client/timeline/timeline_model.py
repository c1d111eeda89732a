"""The timeline: slices on the tracks of processes, arrows between them, marks. Frozen values; times in microseconds.

Time 0 is the moment at which recording had begun, by the coordinator's clock; times of other actors were brought onto it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REQUESTS = "requests"
"""The process whose tracks are requests."""

NETWORK = "network"
"""The process whose tracks are streams between actors."""

WORK = "passes"
"""The track of a target's worker."""

DRAFTING = "drafting"
"""The track of a drafter's worker."""

BUSY = ("prefill", "verify", "draft", "catch up")
"""Names of slices in which a worker did what it is there for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Something that took time."""

    process: str
    """An actor, `REQUESTS` or `NETWORK`."""

    track: str
    name: str
    start_us: float
    duration_us: float
    args: Mapping[str, Any] = field(default_factory=dict)
    """Numbers and names that explain it, as JSON holds them."""

    @property
    def end_us(self) -> float:
        """When it was over."""
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A message, from the slice of its sending to that of its coming."""

    name: str
    sent: Slice
    received: Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that took no time."""

    process: str
    track: str
    name: str
    at_us: float
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackSource:
    """One start of one actor, as far as it was traced."""

    process: str
    """Its name on the timeline."""

    name: str
    role: str
    """`coordinator`, `target` or `drafter`."""

    incarnation: int
    pid: int
    start_us: float
    """From here on it recorded."""

    end_us: float
    """Until here its records came."""

    num_records: int = 0
    num_lost: int = 0
    """Records that its buffer had no room for."""

    clock_offset_us: float = 0.0
    """How far its clock was ahead of the coordinator's."""

    clock_error_us: float | None = 0.0
    """By how much, at most, its times are wrong against the coordinator's; None: nobody knows, no reading came."""

    gone: str = ""
    """Why it went away before the trace ended; empty if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A whole trace."""

    version: str = ""
    """Of the service."""

    emulated: str = ""
    """Profiles of emulated devices that the service runs on; empty if all are real. Every time is then emulated."""

    start_unix_us: float = 0.0
    """Time 0, in microseconds since 1970."""

    duration_us: float = 0.0
    request_id: str = ""
    """The request that was traced; empty: the whole service."""

    ended: str = ""
    """Why: `request`, `time`, `records`, or what went wrong."""

    sources: tuple[TrackSource, ...] = ()
    slices: tuple[Slice, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    marks: tuple[Mark, ...] = ()

    def of(self, process: str, track: str) -> list[Slice]:
        """The slices of one track, by time."""
        found = [s for s in self.slices if s.process == process and s.track == track]
        return sorted(found, key=lambda one: one.start_us)
