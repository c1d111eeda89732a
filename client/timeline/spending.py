"""Where time went: each moment of an actor, and each moment of a request, belongs to exactly one cause. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from outrider.client.timeline.intervals import Span, partition
from outrider.client.timeline.timeline_model import (
    BUSY,
    DRAFTING,
    REQUESTS,
    WORK,
    Slice,
    Timeline,
    TrackSource,
)

BETWEEN = "between passes"
"""What remains of a worker's time: taking messages in, planning, sending, and not getting the processor."""

WAITS_AT_TARGET = ("waits for candidates", "lets a tree grow")
"""Names of slices in which a target waited for drafters."""

OTHERS = "passes of other requests"
DELIVERY = "delivery"
STEPS = ("tokenise", "queue", "open")
"""What the coordinator does for a request before its session is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorTime:
    """The time of one worker."""

    process: str
    role: str
    wall_us: float
    """How long it was traced."""

    spent_us: dict[str, float]
    """By cause; adds up to `wall_us`."""

    num_lost: int = 0
    """Records lost: what they told of counts as `BETWEEN`."""

    @property
    def busy(self) -> float:
        """Part of the time in which it ran passes, 0 to 1."""
        busy_us = sum(us for name, us in self.spent_us.items() if name in BUSY)
        return busy_us / self.wall_us if self.wall_us else 0.0

    @property
    def lost_us(self) -> dict[str, float]:
        """Time that went to something else, by cause, the most first."""
        lost = {name: us for name, us in self.spent_us.items() if name not in BUSY and us > 0}
        return dict(sorted(lost.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTime:
    """The time of one request."""

    request: int
    name: str
    outcome: str
    wall_us: float
    """From arrival, or from the beginning of the trace, to the end of either."""

    spent_us: dict[str, float]
    """By cause; adds up to `wall_us`."""

    committed: int
    """Tokens committed in that time."""


def actor_times(timeline: Timeline) -> tuple[ActorTime, ...]:
    """The times of all workers that were traced for any time."""
    work: dict[str, list[Slice]] = {}
    for one in timeline.slices:
        if one.track in (WORK, DRAFTING):
            work.setdefault(one.process, []).append(one)
    return tuple(
        _actor(source, work.get(source.process, []))
        for source in timeline.sources
        if source.role in ("target", "drafter") and source.end_us > source.start_us
    )


def _actor(source: TrackSource, slices: Sequence[Slice]) -> ActorTime:
    return ActorTime(
        process=source.process,
        role=source.role,
        wall_us=source.end_us - source.start_us,
        spent_us=partition(source.start_us, source.end_us, _layers(slices), rest=BETWEEN),
        num_lost=source.num_lost,
    )


def request_times(timeline: Timeline) -> tuple[RequestTime, ...]:
    """The times of all requests that ran."""
    own: dict[int, list[Slice]] = {}
    wholes: list[Slice] = []
    work: dict[str, list[Slice]] = {}
    for one in timeline.slices:
        if one.track == WORK:
            work.setdefault(one.process, []).append(one)
        elif one.process == REQUESTS and "outcome" in one.args:
            wholes.append(one)
        elif one.process == REQUESTS:
            own.setdefault(one.args.get("request", 0), []).append(one)
    ended = {one.args["request"] for one in wholes}
    wholes += [
        _so_far(slices) for request, slices in own.items() if request and request not in ended
    ]
    wholes.sort(key=lambda one: one.start_us)
    return tuple(_request(one, own.get(one.args["request"], []), work) for one in wholes)


def _so_far(own: Sequence[Slice]) -> Slice:
    """A request of which no end was told, as of a trace that was stopped: from the first to the last that is known of it."""
    start_us, end_us = min(one.start_us for one in own), max(one.end_us for one in own)
    first = next((one for one in own if "name" in one.args), own[0])
    return replace(
        first,
        start_us=start_us,
        duration_us=end_us - start_us,
        args={"name": "", **first.args, "outcome": "running"},
    )


def _request(whole: Slice, own: Sequence[Slice], work: dict[str, list[Slice]]) -> RequestTime:
    start_us, end_us = max(whole.start_us, 0.0), max(whole.end_us, 0.0)
    passes = [one for one in own if one.name in BUSY]
    targets = {one.args["target"] for one in passes}
    near = [
        one
        for target in targets
        for one in work.get(target, [])
        if one.end_us > start_us and one.start_us < end_us
    ]
    layers = _layers(passes) + _layers(one for one in own if one.name in STEPS)
    if passes and whole.args["outcome"] != "running":
        layers.append((DELIVERY, [(max(one.end_us for one in passes), end_us)]))
    layers += _layers(one for one in near if one.name in WAITS_AT_TARGET)
    layers.append((OTHERS, [(one.start_us, one.end_us) for one in near if one.name in BUSY]))
    return RequestTime(
        request=whole.args["request"],
        name=whole.args["name"],
        outcome=whole.args["outcome"],
        wall_us=end_us - start_us,
        spent_us=partition(start_us, end_us, layers, rest=BETWEEN),
        committed=sum(one.args.get("committed", 0) for one in passes),
    )


def _layers(slices: Iterable[Slice]) -> list[tuple[str, Iterable[Span]]]:
    """Times by name."""
    found: dict[str, list[Span]] = {}
    for one in slices:
        found.setdefault(one.name, []).append((one.start_us, one.end_us))
    return list(found.items())
