"""Waiting for a slot: the asyncio shell around `admission`, and what a coordinator may take where there are several.

A target's slots belong to all coordinators alike. Each may take what the others leave, so that one with all the work is not held
back by others without any. When somebody was refused, each keeps to an equal share until that is over: those above it give back as
their requests end, those below go on asking. The target alone decides; `allowance` only saves useless questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outrider.cluster.requests.admission import AdmissionQueue, Grant, Ticket
from outrider.cluster.validation.status_codes import Refusal

ASK_AGAIN_S = 0.5
"""After a refusal for want of a slot. The target tells of room sooner, as long as it is what we take it for."""


class Slots:
    """Hands out slots to whoever waits for them. Lives on one event loop."""

    def __init__(self, *, max_waiting: int) -> None:
        self.admission = AdmissionQueue(max_waiting=max_waiting)
        self._waiters: dict[Ticket, asyncio.Future[Grant]] = {}

    def set_target(self, target: str, num_slots: int) -> None:
        """Adds a target."""
        self.admission.set_target(target, num_slots)
        self._dispatch()

    def refused(self, grant: Grant) -> None:
        """The target had no slot for this grant after all. It says when that changes; it is asked again in any case."""
        before = self.admission.num_slots(grant.target)
        self.admission.refused(grant)
        asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask_again, grant.target, before)

    def _ask_again(self, target: str, num_slots: int) -> None:
        if 0 <= self.admission.num_slots(target) < num_slots:
            self.set_target(target, num_slots)

    def enqueue(self, request: int, num_sequences: int, prompt: Sequence[int] = ()) -> bool:
        """Queues the sequences of a request; False if the queue is full."""
        if not self.admission.enqueue(request, num_sequences, prompt):
            return False
        for index in range(num_sequences):
            self._expect(Ticket(request=request, index=index))
        self._dispatch()
        return True

    def return_to_queue(self, ticket: Ticket) -> None:
        """Queues a sequence that lost its slot, before all others."""
        self.admission.return_to_queue(ticket)
        self._expect(ticket)
        self._dispatch()

    def waits(self, ticket: Ticket) -> bool:
        """Whether a queued sequence has no slot yet."""
        waiter = self._waiters.get(ticket)
        return waiter is not None and not waiter.done()

    async def wait(self, ticket: Ticket) -> Grant:
        """Waits for the slot of a queued sequence.

        Raises:
            Refusal: No slot will come.
        """
        return await self._waiters[ticket]

    def leave(self, ticket: Ticket, grant: Grant | None) -> None:
        """Gives up the place in the queue or the slot, whichever the sequence has."""
        waiter = self._waiters.pop(ticket, None)
        self.admission.withdraw(ticket)
        if grant is not None:
            self.admission.release(grant)
        if waiter is not None and waiter.done() and not waiter.cancelled():
            if waiter.exception() is None:
                self.admission.release(waiter.result())
        elif waiter is not None:
            waiter.cancel()
        self._dispatch()

    def fail_waiting(self, refusal: Refusal) -> None:
        """Fails everyone who waits."""
        for ticket, waiter in self._waiters.items():
            self.admission.withdraw(ticket)
            if not waiter.done():
                waiter.set_exception(refusal)

    def _expect(self, ticket: Ticket) -> None:
        self._waiters[ticket] = asyncio.get_running_loop().create_future()

    def _dispatch(self) -> None:
        while grants := self.admission.grants():
            for grant in grants:
                waiter = self._waiters.get(grant.ticket)
                if waiter is None or waiter.done():
                    self.admission.release(grant)
                else:
                    waiter.set_result(grant)


def allowance(num_slots: int, *, coordinators: int, held_by_others: int, is_contended: bool) -> int:
    """Slots of a target that a coordinator may hold.

    Args:
        num_slots: Of the target.
        coordinators: That are connected to it.
        held_by_others: Slots that the others hold.
        is_contended: Some coordinator was refused lately.
    """
    own = share(num_slots, coordinators)
    return own if is_contended else max(num_slots - held_by_others, own)


def share(whole: int, coordinators: int) -> int:
    """An equal part of something, rounded up, so that none has nothing."""
    return -(-whole // max(1, coordinators))
