"""What a timeline says, in figures: who was busy, what candidates came to, where the time of requests went. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.client.timeline.intervals import common, spans, total_us
from outrider.client.timeline.spending import ActorTime, RequestTime, actor_times, request_times
from outrider.client.timeline.timeline_model import (
    BUSY,
    DRAFTING,
    NETWORK,
    REQUESTS,
    WORK,
    Slice,
    Timeline,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What became of candidate nodes. Times that began before the trace make the parts not add up."""

    proposed: int = 0
    """Came to a target; repeated ancestors count only where they were stale."""

    stale: int = 0
    """The text had gone another way when they came."""

    refused: int = 0
    """There was no room."""

    accepted: int = 0
    """Verified and drawn."""

    rejected: int = 0
    """Verified and not drawn."""

    foreseen: int = 0
    """Drawn before they were verified: the text went on at them."""

    never_chosen: int = 0
    """Dropped without having been part of a pass."""

    @property
    def verified(self) -> int:
        """Part of a pass."""
        return self.accepted + self.rejected

    @property
    def held(self) -> int:
        """Neither decided nor dropped when the trace ended, or when their request did."""
        decided = self.verified + self.foreseen + self.never_chosen
        return max(self.proposed - self.stale - self.refused - decided, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """Rounds of all sessions: what one pass did for one session after its prompt."""

    rounds: int = 0
    with_candidates: int = 0
    """Candidates were at hand and worth their time."""

    hits: int = 0
    """The token drawn first was among the candidates."""

    committed: int = 0
    """Tokens, those of the prompt's last pass included."""

    @property
    def hit_rate(self) -> float:
        """Pool hit rate: hits of all rounds, 0 to 1."""
        return self.hits / self.rounds if self.rounds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Messages of one kind that went one way between two actors."""

    track: str
    what: str
    messages: int
    bytes: int
    median_us: float
    """From sending to coming."""

    p99_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSummary:
    """All of it."""

    version: str
    emulated: str
    """As `Timeline.emulated`."""

    request_id: str
    duration_us: float
    ended: str
    num_records: int
    num_lost: int
    clock_error_us: float | None
    """By how much times of two actors may be wrong against each other; None: some clock is not known."""

    actors: tuple[ActorTime, ...]
    rounds: RoundFigures
    fates: Fates
    fates_by_drafter: dict[str, Fates]
    streams: tuple[StreamFigures, ...]
    requests: tuple[RequestTime, ...]
    drafting_beside_passes: float | None = None
    """Part of the drafters' busy time in which a target was busy too, 0 to 1; None: no drafter was busy."""

    gone: dict[str, str] = field(default_factory=dict)
    """Actors that went away, and why."""


def summarise(timeline: Timeline) -> TimelineSummary:
    """The figures of a timeline."""
    errors = [source.clock_error_us for source in timeline.sources]
    by_drafter = _fates(timeline)
    return TimelineSummary(
        version=timeline.version,
        emulated=timeline.emulated,
        request_id=timeline.request_id,
        duration_us=timeline.duration_us,
        ended=timeline.ended,
        num_records=sum(source.num_records for source in timeline.sources),
        num_lost=sum(source.num_lost for source in timeline.sources),
        clock_error_us=None
        if None in errors
        else sum(sorted(error or 0.0 for error in errors)[-2:]),
        actors=actor_times(timeline),
        rounds=_rounds(timeline),
        fates=_added(by_drafter.values()),
        fates_by_drafter=by_drafter,
        streams=_streams(timeline),
        requests=request_times(timeline),
        drafting_beside_passes=_drafting_beside_passes(timeline),
        gone={source.process: source.gone for source in timeline.sources if source.gone},
    )


def _drafting_beside_passes(timeline: Timeline) -> float | None:
    passes, drafting = (
        spans(one for one in timeline.slices if one.track == track and one.name in BUSY)
        for track in (WORK, DRAFTING)
    )
    return total_us(common(passes, drafting)) / total_us(drafting) if drafting else None


def _rounds(timeline: Timeline) -> RoundFigures:
    rounds = with_candidates = hits = committed = 0
    begun: set[str] = set()
    for one in sorted(timeline.slices, key=lambda one: one.start_us):
        if one.process != REQUESTS or not one.args.get("committed"):
            continue
        committed += one.args["committed"]
        is_first = one.track not in begun and one.name == "prefill"
        begun.add(one.track)
        if is_first and not one.args["nodes"]:
            # The end of the prompt: there was nothing to foresee yet.
            continue
        rounds += 1
        with_candidates += one.args["nodes"] > 0
        hits += any(fates["accepted"] for fates in one.args.get("fates", {}).values())
    return RoundFigures(
        rounds=rounds, with_candidates=with_candidates, hits=hits, committed=committed
    )


def _fates(timeline: Timeline) -> dict[str, Fates]:
    counts: dict[str, dict[str, int]] = {}
    for one in timeline.slices:
        if one.name == "candidates" and "fresh" in one.args:
            args = one.args
            count = counts.setdefault(args["drafter"], {})
            for name in ("stale", "refused"):
                count[name] = count.get(name, 0) + args[name]
            came = args["fresh"] + args["stale"] + args["refused"]
            count["proposed"] = count.get("proposed", 0) + came
        elif one.process == REQUESTS:
            for drafter, fates in one.args.get("fates", {}).items():
                count = counts.setdefault(drafter, {})
                for name, number in fates.items():
                    count[name] = count.get(name, 0) + number
    return {drafter: Fates(**count) for drafter, count in sorted(counts.items())}


def _added(parts: Iterable[Fates]) -> Fates:
    names = Fates.__dataclass_fields__
    found = list(parts)
    return Fates(**{name: sum(getattr(part, name) for part in found) for name in names})


def _streams(timeline: Timeline) -> tuple[StreamFigures, ...]:
    groups: dict[tuple[str, str], list[Slice]] = {}
    for one in timeline.slices:
        if one.process == NETWORK:
            groups.setdefault((one.track, one.name), []).append(one)
    return tuple(
        StreamFigures(
            track=track,
            what=what,
            messages=len(found),
            bytes=sum(one.args["bytes"] for one in found),
            median_us=_quantile([one.args["latency_us"] for one in found], 0.5),
            p99_us=_quantile([one.args["latency_us"] for one in found], 0.99),
        )
        for (track, what), found in sorted(groups.items())
    )


def _quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
