"""Streams between processes: bytes that take their time, in order, and connections that break.

What a lost packet looks like to the reader of a stream is a delay: the kernel sends it again after a tail loss probe (RFC 8985,
2 round trips, 10 ms at least), and everything behind it waits. What a cut looks like is the end of the stream, to both ends at once,
with all that was under way lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from outrider.cluster.simulate.heap import EventRecord, Heap
from outrider.cluster.simulate.simulated_process import Process

FRAMING_BYTES = 32
"""Of gRPC and HTTP/2 for each message, both ways in the mean (docs/journal.md: 23 up and 41 down)."""

PROBE_ROUND_TRIPS = 2.0
LEAST_PROBE_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One direction of a connection."""

    latency_s: float = 0.0
    """Seconds that a byte takes."""

    jitter_s: float = 0.0
    """Mean of what is added to each message, exponentially distributed."""

    bytes_per_s: float = float("inf")
    """Bytes that it carries in a second."""

    loss: float = 0.0
    """Share of messages of which a packet is lost, 0 to 1."""


class SimulatedStream:
    """A connection between two processes."""

    def __init__(
        self,
        name: str,
        heap: Heap,
        record: EventRecord,
        way: Way,
        seed: int,
        ends: tuple[Process, Process],
        takes: tuple[Callable[[bytes], None], Callable[[bytes], None]],
    ) -> None:
        """
        Args:
            name: For the record.
            heap: The clock.
            record: Takes what is sent.
            way: Each direction.
            seed: Of jitter and loss.
            ends: The processes.
            takes: What each does with what it gets.
        """
        self.name = name
        self.way = way
        self.is_open = True
        self.num_bytes = 0
        """Sent so far, framing included."""
        self.num_messages = 0
        self._heap = heap
        self._record = record
        self._ends, self._takes = ends, takes
        self._random = random.Random(seed)
        self._sent_by = [0.0, 0.0]
        self._there_by = [0.0, 0.0]

    def tell(self, sender: Process, message: Message) -> None:
        """Sends a message, which takes its sender time; nothing if the connection is broken."""
        if self.is_open:
            sender.spend_on_message()
            self.send(sender, message.SerializeToString())

    def send(self, sender: Process, payload: bytes) -> None:
        """Sends bytes at the sender's present; nothing if the connection is broken.

        Args:
            sender: One of the ends.
            payload: The message.
        """
        if not self.is_open:
            return
        side = self._ends.index(sender)
        receiver, take, way = self._ends[1 - side], self._takes[1 - side], self.way
        size = len(payload) + FRAMING_BYTES
        self.num_bytes += size
        self.num_messages += 1
        self._record.note(sender.now, f"{self.name} {sender.name}", "sends", payload)
        self._sent_by[side] = max(self._sent_by[side], sender.now) + size / way.bytes_per_s
        arrives = self._sent_by[side] + way.latency_s
        if way.jitter_s > 0.0:
            arrives += self._random.expovariate(1.0 / way.jitter_s)
        if way.loss > 0.0 and self._random.random() < way.loss:
            arrives += max(PROBE_ROUND_TRIPS * 2.0 * way.latency_s, LEAST_PROBE_S)
        self._there_by[side] = arrives = max(arrives, self._there_by[side])

        def arrive() -> None:
            if self.is_open:
                receiver.post(payload, take)

        self._heap.at(arrives, arrive)

    def cut(self) -> None:
        """Breaks it; what is under way is lost."""
        self.is_open = False
        self._record.note(self._heap.now, self.name, "breaks")
