"""A summary in words. Pure."""

from __future__ import annotations

from outrider.client.timeline.spending import ActorTime, RequestTime
from outrider.client.timeline.summary import Fates, StreamFigures, TimelineSummary
from outrider.client.timeline.timeline_model import BUSY

SHOWN_REQUESTS = 10
"""Requests that are told one by one; the longest."""

LEAST_SHARE = 0.0005
"""Shares below this are left out."""

_ENDED = {
    "request": "the request ended",
    "time": "the time was over",
    "records": "it held as many records as allowed",
}


def lines(summary: TimelineSummary) -> list[str]:
    """The summary, a line a thing."""
    told = [_head(summary)]
    told += [f"{process} went away: {why}" for process, why in summary.gone.items()]
    told += [_actor(actor) for actor in summary.actors]
    if summary.drafting_beside_passes is not None:
        told.append(
            f"{summary.drafting_beside_passes:.1%} of the drafting ran while a target was busy"
        )
    told += _speculation(summary)
    told += [_stream(stream) for stream in summary.streams]
    longest = sorted(summary.requests, key=lambda one: -one.wall_us)[:SHOWN_REQUESTS]
    told += [_request(one) for one in longest]
    if len(summary.requests) > len(longest):
        told.append(f"and {len(summary.requests) - len(longest)} shorter requests")
    told += _verdict(summary)
    return told


def _head(summary: TimelineSummary) -> str:
    what = f"request {summary.request_id}" if summary.request_id else "the whole service"
    why = _ENDED.get(summary.ended, summary.ended or "its end is missing")
    lost = f"{summary.num_lost} LOST" if summary.num_lost else "none lost"
    clocks = (
        "some clock is unknown: its times may be far off"
        if summary.clock_error_us is None
        else f"clocks compared within {_time(summary.clock_error_us)}"
    )
    return (
        f"{_time(summary.duration_us)} of {what}, until {why}; {summary.num_records} records, "
        f"{lost}; {clocks}" + (f"; emulated: {summary.emulated}" if summary.emulated else "")
    )


def _actor(actor: ActorTime) -> str:
    busy = _shares({n: us for n, us in actor.spent_us.items() if n in BUSY}, actor.wall_us)
    rest = _shares(actor.lost_us, actor.wall_us)
    line = f"{actor.process}: busy {actor.busy:.1%} of {_time(actor.wall_us)}"
    line += f" ({busy})" if busy else ""
    line += f"; the rest: {rest}" if rest else ""
    if actor.num_lost:
        line += f"; {actor.num_lost} records lost, which count as the last"
    return line


def _speculation(summary: TimelineSummary) -> list[str]:
    rounds = summary.rounds
    if not rounds.rounds:
        return ["no round was decided in this time"]
    at_hand = rounds.with_candidates / rounds.rounds
    told = []
    told.append(
        f"{rounds.committed} tokens; {rounds.rounds} rounds after the prompts; candidates at hand in {at_hand:.1%}; "
        f"pool hit rate {rounds.hit_rate:.1%} (the next token was among them)"
    )
    if summary.fates.proposed:
        told.append(f"candidates: {_fates(summary.fates)}")
        if len(summary.fates_by_drafter) > 1:
            told += [f"  of {name}: {_fates(of)}" for name, of in summary.fates_by_drafter.items()]
    return told


def _fates(fates: Fates) -> str:
    whole = max(fates.proposed, 1)
    verified = max(fates.verified, 1)
    return (
        f"{fates.proposed} came; stale work {fates.stale / whole:.1%}, no room {fates.refused / whole:.1%}; "
        f"verified {fates.verified / whole:.1%}, of these accepted {fates.accepted / verified:.1%}; "
        f"foreseen {fates.foreseen / whole:.1%}; never chosen {fates.never_chosen / whole:.1%}; "
        f"left over {fates.held / whole:.1%}"
    )


def _stream(stream: StreamFigures) -> str:
    return (
        f"{stream.track}: {stream.messages} {stream.what}, {stream.bytes} bytes; under way "
        f"{_time(stream.median_us)} in the middle, {_time(stream.p99_us)} at worst but 1%"
    )


def _request(one: RequestTime) -> str:
    ordered = dict(sorted(one.spent_us.items(), key=lambda item: -item[1]))
    return (
        f"request {one.request} {one.name} ({one.outcome}): {one.committed} tokens in "
        f"{_time(one.wall_us)}: {_shares(ordered, one.wall_us)}"
    )


def _verdict(summary: TimelineSummary) -> list[str]:
    """What the targets' time was lost to, all of them together, while there was something to do."""
    lost: dict[str, float] = {}
    for actor in summary.actors:
        if actor.role == "target":
            for name, us in actor.lost_us.items():
                lost[name] = lost.get(name, 0.0) + us
    lost.pop("no session", None)
    if not lost:
        return []
    parts = ", ".join(
        f"{name} {_time(us)}" for name, us in sorted(lost.items(), key=lambda item: -item[1])
    )
    return [f"time lost at the target while it had sessions: {parts}"]


def _shares(spent_us: dict[str, float], whole_us: float) -> str:
    return ", ".join(
        f"{name} {us / whole_us:.1%}"
        for name, us in spent_us.items()
        if whole_us and us / whole_us >= LEAST_SHARE
    )


def _time(us: float) -> str:
    """A time as people read it."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(us) >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.0f} µs"
