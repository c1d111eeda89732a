"""The two ends of each message, joined: an arrow, and a slice on the network's track as long as it was under way. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.client.timeline.timeline_model import NETWORK, Arrow, Slice, TrackSource
from outrider.v1 import trace_pb2

Key = tuple[str, int, int, bool, int]
"""Drafter, its start, stream, direction, number: the same at both ends."""


def key_of(message: trace_pb2.TraceMessage) -> Key:
    """What names a message."""
    return (
        message.drafter,
        message.incarnation,
        message.stream,
        message.to_target,
        message.number,
    )


@dataclass(slots=True)
class Ends:
    """Ends of messages, by what names them."""

    sent: dict[Key, Slice] = field(default_factory=dict)
    received: dict[Key, Slice] = field(default_factory=dict)


def join(ends: Ends, sources: Sequence[TrackSource]) -> tuple[list[Arrow], list[Slice]]:
    """Arrows of the messages of which both ends are known, and their times under way.

    A time that comes out negative, because clocks are compared only so well, is shown as 0.
    """
    errors = {source.process: source.clock_error_us for source in sources}
    arrows: list[Arrow] = []
    flights: list[Slice] = []
    for key, sent in sorted(ends.sent.items(), key=lambda item: item[1].start_us):
        received = ends.received.get(key)
        if received is None:
            continue
        latency_us = round(received.start_us - sent.start_us, 3)
        known = [errors.get(sent.process), errors.get(received.process)]
        args = dict(sent.args)
        args["latency_us"] = latency_us
        if None not in known:
            args["clock_error_us"] = round(sum(error or 0.0 for error in known), 3)
        arrows.append(Arrow(name=sent.name, sent=sent, received=received))
        flights.append(
            Slice(
                process=NETWORK,
                track=f"{sent.process} → {received.process}",
                name=sent.name,
                start_us=sent.start_us,
                duration_us=max(latency_us, 0.0),
                args=args,
            )
        )
    return arrows, flights
