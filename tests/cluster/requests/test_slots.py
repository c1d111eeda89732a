"""Waiting for slots."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from outrider.cluster.requests.admission import Grant, Ticket
from outrider.cluster.requests.slot_queue import Slots
from outrider.cluster.validation.status_codes import Refusal


async def test_a_released_slot_wakes_the_next() -> None:
    """In order of arrival; the queue's bound is kept."""
    slots = Slots(max_waiting=1)
    slots.set_target("t", 1)
    assert slots.enqueue(1, 1)
    first = await slots.wait(Ticket(request=1, index=0))
    assert slots.enqueue(2, 1)
    assert not slots.enqueue(3, 1)
    second = asyncio.ensure_future(slots.wait(Ticket(request=2, index=0)))
    await asyncio.sleep(0)
    assert not second.done()
    slots.leave(first.ticket, first)
    assert (await second).ticket.request == 2


@pytest.mark.parametrize("is_granted", [False, True])
async def test_whoever_leaves_passes_the_slot_on(is_granted: bool) -> None:
    """Cancelled before or just after the slot came: it is never lost."""
    slots = Slots(max_waiting=4)
    slots.set_target("t", 1)
    holder: Grant | None = None
    if not is_granted:
        slots.enqueue(9, 1)
        holder = await slots.wait(Ticket(request=9, index=0))
    slots.enqueue(1, 1)
    slots.enqueue(2, 1)
    leaving = asyncio.ensure_future(slots.wait(Ticket(request=1, index=0)))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    slots.leave(Ticket(request=1, index=0), None)
    if holder is not None:
        slots.leave(holder.ticket, holder)
    async with asyncio.timeout(60.0):
        assert (await slots.wait(Ticket(request=2, index=0))).target == "t"
    assert slots.admission.num_running == 1


async def test_failing_the_queue_tells_everyone() -> None:
    """When no target is coming back, nobody waits on."""
    slots = Slots(max_waiting=4)
    slots.enqueue(1, 2)
    refusal = Refusal(grpc.StatusCode.UNAVAILABLE, "no target")
    slots.fail_waiting(refusal)
    for index in range(2):
        with pytest.raises(Refusal, match="no target"):
            await slots.wait(Ticket(request=1, index=index))
        slots.leave(Ticket(request=1, index=index), None)
    assert slots.admission.num_waiting == 0
