"""Which sequence gets the next free slot, and at which target. Pure: no clock, no waiting.

Invariants: a target never has more grants than slots; nobody who waits holds a slot for someone else's sake, so a
request of many sequences cannot deadlock: each of them starts when it gets a slot. Requests take turns: one that has
got a slot and wants more goes to the end of the queue. Sequences that lost their target go first, and the bound on the
queue does not hold for them: they are running as far as the client can tell.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.speculation.trees import base_hash

WORTH_LOAD = 0.25
"""Part of a target's slots by which it may be busier than the idlest one and still get a request whose beginning it knows. Less
computes prompts again, more makes requests wait for each other's passes."""

BLOCK = 32
"""Tokens of a block of a prompt. Beginnings are known in whole blocks."""

MAX_BLOCKS = 1 << 16
"""Blocks that are remembered, the most recently used: two million tokens of prompts, some megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One sequence that wants a slot."""

    request: int
    """Number of the request."""

    index: int
    """Which of its sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A slot given to a sequence, until it is released or the target is lost."""

    number: int
    ticket: Ticket
    target: str


class PrefixRoutes:
    """Which target has computed which beginnings of prompts, as far as this coordinator sent them there.

    An estimate: a target forgets rows when it needs their slot, and only it knows. A wrong guess costs a prompt computed again.
    """

    def __init__(self, *, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._seen: OrderedDict[int, str] = OrderedDict()
        self._prompts: dict[int, list[int]] = {}

    def add(self, request: int, prompt: Sequence[int]) -> None:
        """Takes in the prompt of a request."""
        hashes, value = [], base_hash.EMPTY
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            value = base_hash.extend_all(value, prompt[start : start + BLOCK])
            hashes.append(value)
        if hashes:
            self._prompts[request] = hashes

    def forget(self, request: int) -> None:
        """The request has ended. Where its prompt went stays known."""
        self._prompts.pop(request, None)

    def known(self, request: int) -> dict[str, int]:
        """Tokens of a request's prompt that each target has seen, from the beginning on."""
        tokens: dict[str, int] = {}
        for index, value in enumerate(self._prompts.get(request, ()), start=1):
            target = self._seen.get(value)
            if target is None:
                break
            # A longer beginning was seen where its last block was; its shorter ones may have been seen elsewhere later.
            tokens[target] = index * BLOCK
        return tokens

    def sent(self, request: int, target: str) -> None:
        """The request goes to a target, which will know its prompt."""
        for value in self._prompts.get(request, ()):
            self._seen[value] = target
            self._seen.move_to_end(value)
        while len(self._seen) > self._max_blocks:
            self._seen.popitem(last=False)


class AdmissionQueue:
    """The queue and the slots of every target."""

    def __init__(self, *, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        """Requests that may wait. Who waits already goes on waiting when there come to be fewer."""
        self.routes = PrefixRoutes()
        """Which target has seen which beginnings of prompts."""
        self._slots: dict[str, int] = {}
        self._held: dict[str, set[int]] = {}
        self._returning: deque[Ticket] = deque()
        self._queue: OrderedDict[int, deque[Ticket]] = OrderedDict()
        self._next_number = 0

    @property
    def num_waiting(self) -> int:
        """Requests with a sequence that waits for a slot."""
        return len(self._queue) + len({ticket.request for ticket in self._returning})

    @property
    def num_running(self) -> int:
        """Sequences that hold a slot."""
        return sum(map(len, self._held.values()))

    def set_target(self, target: str, num_slots: int) -> None:
        """Adds a target, or changes how many of its slots may be held."""
        self._slots[target] = num_slots
        self._held.setdefault(target, set())

    def num_slots(self, target: str) -> int:
        """Slots of a target that may be held; -1 if it is not known."""
        return self._slots.get(target, -1)

    def refused(self, grant: Grant) -> None:
        """The target had no slot for this grant after all: other coordinators hold them. Until `set_target` tells otherwise
        no more are given out than are held."""
        self.release(grant)
        if grant.target in self._slots:
            self._slots[grant.target] = min(
                self._slots[grant.target], len(self._held[grant.target])
            )

    def remove_target(self, target: str) -> None:
        """Takes a target out. Its grants are void."""
        self._slots.pop(target, None)
        self._held.pop(target, None)

    def enqueue(self, request: int, num_sequences: int, prompt: Sequence[int] = ()) -> bool:
        """Queues the sequences of a request; False, and nothing is queued, if the queue is full.

        Args:
            request: Its number.
            num_sequences: How many slots it wants.
            prompt: Its prompt's token ids, to send it where they are known. `forget` it when the request has ended.
        """
        if len(self._queue) >= self.max_waiting and not (self._free() and not self._queue):
            return False
        self.routes.add(request, prompt)
        self._queue[request] = deque(
            Ticket(request=request, index=index) for index in range(num_sequences)
        )
        return True

    def return_to_queue(self, ticket: Ticket) -> None:
        """Queues a sequence that lost its slot, before all others."""
        self._returning.append(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Takes a sequence out of the queue, if it is there."""
        if ticket in self._returning:
            self._returning.remove(ticket)
        waiting = self._queue.get(ticket.request)
        if waiting is not None and ticket in waiting:
            waiting.remove(ticket)
            if not waiting:
                del self._queue[ticket.request]

    def release(self, grant: Grant) -> None:
        """Gives a slot back. Releasing twice, or after the target was lost, does nothing."""
        self._held.get(grant.target, set()).discard(grant.number)

    def grants(self) -> list[Grant]:
        """Gives out free slots, as many as there are takers: each to the target with most room."""
        given: list[Grant] = []
        while self._free() > 0 and (ticket := self._next()) is not None:
            target = self._target_for(ticket)
            self._next_number += 1
            self._held[target].add(self._next_number)
            given.append(Grant(number=self._next_number, ticket=ticket, target=target))
            self.routes.sent(ticket.request, target)
        return given

    def _free(self) -> int:
        return sum(self._room().values())

    def _room(self) -> dict[str, int]:
        """Free slots of each target; of one that lowered its number, none until enough are released."""
        return {
            target: max(0, slots - len(self._held[target])) for target, slots in self._slots.items()
        }

    def _target_for(self, ticket: Ticket) -> str:
        """Of the targets with room the one that knows most of the prompt, if it is not much busier; else the roomiest."""
        room = {target: free for target, free in self._room().items() if free}
        if len(room) == 1:
            return next(iter(room))
        known = self.routes.known(ticket.request)
        load = {target: len(self._held[target]) / self._slots[target] for target in room}
        idlest = min(load.values())
        near = [target for target in room if load[target] <= idlest + WORTH_LOAD]
        return max(near, key=lambda target: (known.get(target, 0), -load[target], room[target]))

    def _next(self) -> Ticket | None:
        if self._returning:
            return self._returning.popleft()
        if not self._queue:
            return None
        request, waiting = self._queue.popitem(last=False)
        ticket = waiting.popleft()
        if waiting:
            self._queue[request] = waiting
        return ticket
