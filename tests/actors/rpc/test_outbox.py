"""Messages that wait for a writer."""

from __future__ import annotations

import asyncio

from outrider.actors.rpc.outbox import Outbox

BOUND_S = 60.0


async def test_everything_that_waits_is_taken_at_once_in_order() -> None:
    outbox: Outbox[int] = Outbox()
    for number in range(3):
        outbox.put(number)
    assert await outbox.take() == [0, 1, 2]
    outbox.put(3)
    assert await outbox.take() == [3]


async def test_a_writer_that_waits_is_woken() -> None:
    outbox: Outbox[int] = Outbox()
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(1)
    outbox.put(2)
    assert await asyncio.wait_for(taking, BOUND_S) == [1, 2]


async def test_the_end_drops_what_waits_and_what_comes_later() -> None:
    outbox: Outbox[int] = Outbox()
    outbox.put(1)
    outbox.end()
    outbox.put(2)
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == []
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == []


async def test_what_waits_is_still_taken_after_a_finish() -> None:
    outbox: Outbox[int] = Outbox()
    outbox.put(1)
    outbox.finish()
    outbox.put(2)
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == [1]
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == []


async def test_the_end_wakes_a_writer() -> None:
    outbox: Outbox[int] = Outbox()
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    outbox.end()
    assert await asyncio.wait_for(taking, BOUND_S) == []


async def test_a_peer_that_does_not_read_is_cut_off() -> None:
    outbox: Outbox[int] = Outbox(2)
    outbox.put(1)
    outbox.put(2)
    assert await outbox.take() == [1, 2]
    for number in range(3):
        outbox.put(number)
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == []


async def test_a_writer_that_is_cancelled_loses_nothing() -> None:
    outbox: Outbox[int] = Outbox()
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    outbox.put(1)
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == [1]


async def test_a_reader_that_is_too_slow_is_known() -> None:
    outbox: Outbox[int] = Outbox(2)
    for number in range(3):
        assert not outbox.is_overrun
        outbox.put(number)
    assert outbox.is_overrun
    assert await asyncio.wait_for(outbox.take(), BOUND_S) == []
