"""Streams: time, order, loss and cuts."""

from __future__ import annotations

import math
from functools import partial

import pytest

from outrider.cluster.simulate.heap import EventRecord, Heap
from outrider.cluster.simulate.network import FRAMING_BYTES, SimulatedStream, Way
from outrider.cluster.simulate.prices import FREE
from outrider.cluster.simulate.simulated_process import Machine, Process


class Ear(Process):
    """Notes when it heard what."""

    heard: list[tuple[float, bytes]]

    def turn(self) -> float | None:
        """See `Process`."""
        while self.inbox:
            letter = self.inbox.popleft()
            letter.take(letter.payload)
        return None


def connected(way: Way) -> tuple[Heap, Ear, Ear, SimulatedStream]:
    """Two ends of a stream."""
    heap, record = Heap(), EventRecord()
    machine = Machine(None)
    ends = Ear("a", heap, machine, record, FREE), Ear("b", heap, machine, record, FREE)
    for end in ends:
        end.heard = []

    def hear(end: Ear, payload: bytes) -> None:
        end.heard.append((heap.now, payload))

    takes = partial(hear, ends[0]), partial(hear, ends[1])
    return heap, *ends, SimulatedStream("s", heap, record, way, 1, ends, takes)


def sent(
    heap: Heap, one: Ear, other: Ear, stream: SimulatedStream, payloads: list[bytes]
) -> list[float]:
    """Sends messages at once; when each was heard, all in order."""
    for payload in payloads:
        stream.send(one, payload)
    heap.run(math.inf)
    assert [payload for _, payload in other.heard] == payloads
    return [when for when, _ in other.heard]


def test_a_message_takes_the_latency_and_its_bytes_their_time() -> None:
    """The second waits until the first is out."""
    heap, one, other, stream = connected(Way(latency_s=0.1, bytes_per_s=1000.0))
    times = sent(heap, one, other, stream, [b"x" * 68, b"x" * 168])
    assert times == pytest.approx([0.1 + (68 + FRAMING_BYTES) / 1000, 0.1 + 0.3])
    assert stream.num_bytes == 68 + 168 + 2 * FRAMING_BYTES


def test_jitter_and_loss_delay_but_never_reorder_or_drop() -> None:
    """As a stream over TCP."""
    heap, one, other, stream = connected(Way(latency_s=0.01, jitter_s=0.02, loss=0.3))
    times = sent(heap, one, other, stream, [bytes([n]) for n in range(100)])
    assert times == sorted(times)
    assert times[-1] >= 0.01 + 0.04


def test_what_is_under_way_when_it_breaks_is_lost_and_so_is_what_is_sent_then() -> None:
    """Both ends see nothing of it later."""
    heap, one, other, stream = connected(Way(latency_s=1.0))
    stream.send(one, b"early")
    heap.at(0.5, stream.cut)
    heap.at(0.6, lambda: stream.send(one, b"late"))
    heap.run(5.0)
    assert other.heard == []


def test_cores_are_shared_and_the_first_that_is_free_is_taken() -> None:
    """Three bursts of a second on two cores."""
    machine = Machine(2)
    assert [machine.run(0.0, 1.0) for _ in range(3)] == [1.0, 1.0, 2.0]
    assert Machine(None).run(0.0, 1.0) == 1.0
