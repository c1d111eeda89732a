"""Features that wait for credit: they hold nobody up, and the oldest are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from outrider.actors.exchange import features
from outrider.actors.exchange.feedback_offer import FeedbackOffer
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.target.service.feedback_queue import FeedbackQueue, pack
from outrider.actors.target.state.tally import FeedbackTally
from outrider.actors.target.state.target_events import FeedbackReady

WIDTH = 8
ROW_BYTES = 2 * WIDTH
FRAME_BYTES = 36 + 16 + ROW_BYTES

BOUND_S = 60.0


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """Packs."""
    with ThreadPoolExecutor(1) as made:
        yield made


def ready(position: int, count: int = 1) -> FeedbackReady:
    """States at some positions."""
    return FeedbackReady(
        drafter="d",
        handles_E=np.array([9], np.uint64),
        firsts_E=np.array([position]),
        starts_E=np.array([0, count]),
        states=lambda: np.full((count, 1, WIDTH), position, np.uint16),
        tops=None,
        rejected=None,
    )


def queue(
    executor: ThreadPoolExecutor, tally: FeedbackTally, *, credit_bytes: int, most_rows: int = 100
) -> FeedbackQueue:
    """A queue of one layer's states."""
    return FeedbackQueue(
        FeedbackRequest(layers=(1,)),
        FeedbackOffer(num_blocks=2, width=WIDTH, revision=5, layers=(1,)),
        credit_bytes=credit_bytes,
        tally=tally,
        executor=executor,
        most_waiting_bytes=most_rows * ROW_BYTES,
    )


async def positions(waiting: FeedbackQueue) -> list[int]:
    """The next message's."""
    async with asyncio.timeout(BOUND_S):
        (message,) = await waiting.take()
    found: list[int] = features.decode(message.frame).firsts_E.tolist()
    return found


async def test_what_is_sent_is_paid_for(executor: ThreadPoolExecutor) -> None:
    """Nothing goes out without credit; what comes back lets as much go."""
    tally = FeedbackTally()
    waiting = queue(executor, tally, credit_bytes=FRAME_BYTES)
    for position in range(3):
        waiting.put(ready(position))
    assert await positions(waiting) == [0]
    third = asyncio.ensure_future(positions(waiting))
    await asyncio.sleep(0.05)
    assert not third.done()
    waiting.grant(FRAME_BYTES)
    assert await third == [1]
    assert (tally.num_bytes, tally.rows, tally.dropped_rows) == (2 * FRAME_BYTES, 2, 0)


async def test_the_oldest_are_dropped(executor: ThreadPoolExecutor) -> None:
    """As many rows as there is no room for; what is left comes when there is credit."""
    tally = FeedbackTally()
    waiting = queue(executor, tally, credit_bytes=0, most_rows=4)
    for position in range(10):
        waiting.put(ready(position))
    assert tally.dropped_rows == 6
    waiting.grant(10 * FRAME_BYTES)
    assert [await positions(waiting) for _ in range(4)] == [[6], [7], [8], [9]]


async def test_a_frame_larger_than_all_credit_goes(executor: ThreadPoolExecutor) -> None:
    """Or it would wait for ever."""
    waiting = queue(executor, FeedbackTally(), credit_bytes=1)
    waiting.put(ready(0, count=50))
    assert await positions(waiting) == [0]


async def test_the_end_wakes_who_waits(executor: ThreadPoolExecutor) -> None:
    """And nothing is taken in after it."""
    waiting = queue(executor, FeedbackTally(), credit_bytes=0)
    taking = asyncio.ensure_future(waiting.take())
    await asyncio.sleep(0)
    waiting.end()
    waiting.put(ready(0))
    async with asyncio.timeout(BOUND_S):
        assert await taking == []


def test_large_frames_go_in_parts() -> None:
    """Each with its own first position."""
    frames = pack(ready(7, count=10), 5, most_bytes=4 * ROW_BYTES)
    found = [features.decode(frame.data) for frame in frames]
    assert [(int(one.firsts_E[0]), one.num_rows) for one in found] == [(7, 4), (11, 4), (15, 2)]
    assert [frame.num_rows for frame in frames] == [4, 4, 2]
