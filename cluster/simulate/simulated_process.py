"""A process: one interpreter that does one thing after another, on a machine whose cores it may share."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from outrider.cluster.simulate.heap import EventRecord, Heap, Timer
from outrider.cluster.simulate.prices import Prices


class Machine:
    """Cores. Whoever wants one takes the first that is free and keeps it until it is done: bursts are far shorter than passes."""

    def __init__(self, cores: int | None) -> None:
        """Takes the number of cores; None: one for everybody."""
        self._free: list[float] | None = None
        """A heap: the core that is free first comes first."""
        self.set_cores(cores, 0.0)

    def set_cores(self, cores: int | None, now: float) -> None:
        """Changes the number of cores; what runs on one that goes is thought of as done."""
        self._free = None if cores is None else [now] * cores

    def run(self, start: float, seconds: float) -> float:
        """Seconds at which work that may start at `start` and takes `seconds` of a core is done."""
        if self._free is None or seconds <= 0.0:
            return start + seconds
        done = max(start, self._free[0]) + seconds
        heapq.heapreplace(self._free, done)
        return done


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that has arrived."""

    arrived: float
    """Seconds."""
    take: Callable[[bytes], None]
    """What the receiver does with it."""
    payload: bytes


class Process(ABC):
    """Takes turns: in each it does what there is to do, which takes processor time, and says when to look again."""

    def __init__(
        self, name: str, heap: Heap, machine: Machine, record: EventRecord, prices: Prices
    ) -> None:
        self._prices = prices
        self.name = name
        self.heap = heap
        self.machine = machine
        self.record = record
        self.now = 0.0
        """The process's own clock, seconds: ahead of the heap's within a turn, by the processor time that it has spent."""
        self.cpu_s = 0.0
        """Processor seconds spent so far, passes of models left out."""
        self.is_alive = True
        self.inbox: deque[Letter] = deque()
        self._turn: Timer | None = None
        self._is_awake = False
        """A message was paid for in this turn."""
        self._slowness = 1.0
        """How many times longer steps of this turn take, because the process has slept."""

    def post(self, payload: bytes, take: Callable[[bytes], None]) -> None:
        """A message arrives now."""
        if not self.is_alive:
            return
        self.inbox.append(Letter(self.heap.now, take, payload))
        self.wake(self.heap.now)

    def wake(self, when: float) -> None:
        """Has a turn at this time, or as soon as the former one is over."""
        when = max(when, self.now)
        if self._turn is not None:
            if self._turn.when <= when:
                return
            self._turn.cancel()
        self._turn = self.heap.at(when, self._take_turn)

    def spend(self, seconds: float) -> None:
        """Spends processor time on a step."""
        self._use(seconds * self._slowness)

    def spend_on_message(self) -> None:
        """Spends what a message sent or received takes; the first of a turn wakes the process up, too."""
        message = self._prices.message
        self._use(message.seconds(0.0 if self._is_awake else self._slowness))
        self._is_awake = True

    def _use(self, seconds: float) -> None:
        self.cpu_s += seconds
        self.now = self.machine.run(self.now, seconds)

    def pause(self, seconds: float) -> None:
        """Stands still, as a process does whose machine is busy with other things."""
        self.now = max(self.now, self.heap.now) + seconds

    def _take_turn(self) -> None:
        self._turn = None
        if not self.is_alive:
            return
        if self.now > self.heap.now:
            self.wake(self.now)
            return
        self._slowness = self._prices.sleep.factor(self.heap.now - self.now)
        self.now = self.heap.now
        self._is_awake = False
        due = self.turn()
        if due is not None:
            self.wake(due)

    @abstractmethod
    def turn(self) -> float | None:
        """Does what there is to do. Returns when to look again, in seconds; None: once a message has come."""

    def kill(self) -> None:
        """Ends the process; what it was sent is lost."""
        self.is_alive = False
        self.inbox.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
