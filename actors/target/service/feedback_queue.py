"""What waits to be told to one drafter beyond tokens: bounded, paid for by credits, the oldest dropped.

Passes put in and never wait. Reading, rounding and packing happen on another thread, one pass after the other, and only when there is
credit: a drafter that is slow, or a link that is narrow, costs features and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.exchange import features
from outrider.actors.exchange.features import Features
from outrider.actors.exchange.feedback_offer import FeedbackOffer
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.target.state.tally import FeedbackTally
from outrider.actors.target.state.target_events import FeedbackReady
from outrider.v1 import target_pb2

MOST_WAITING_BYTES = 32 * 1024 * 1024
"""Features that wait for credit or for the thread that packs them, at most; a prompt of a thousand tokens at five layers of 3,000
numbers."""

FRAME_BYTES = 1024 * 1024
"""About the largest frame. What is more goes in several, so that none keeps the line for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFrame:
    """A frame, and how many rows are in it."""

    data: bytes
    num_rows: int


class FeedbackQueue:
    """Features on their way to one drafter. On one event loop; one task takes."""

    def __init__(
        self,
        request: FeedbackRequest,
        offer: FeedbackOffer,
        *,
        credit_bytes: int,
        tally: FeedbackTally,
        executor: Executor,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        """
        Args:
            request: What the drafter asked for.
            offer: What it was told that it gets.
            credit_bytes: Bytes of frames that may be on their way.
            tally: Counts what is sent and dropped.
            executor: Packs; one thread, for order.
            most_waiting_bytes: Bytes that may wait.
        """
        self._request = request
        self._offer = offer
        self._credit_bytes = credit_bytes
        self._tally = tally
        self._executor = executor
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: deque[FeedbackReady] = deque()
        self._waiting_bytes = 0
        self._packed: deque[PackedFrame] = deque()
        self._is_ended = False
        self._news = asyncio.Event()

    def put(self, ready: FeedbackReady) -> None:
        """Takes the features of a pass; drops the oldest that wait if there are too many."""
        if self._is_ended:
            return
        self._waiting.append(ready)
        self._waiting_bytes += self._bytes_of(ready)
        while self._waiting_bytes > self._most_waiting_bytes:
            oldest = self._next()
            self._tally.dropped_rows += oldest.num_rows
        self._news.set()

    def grant(self, credit_bytes: int) -> None:
        """So many more bytes may be sent."""
        self._credit_bytes += credit_bytes
        self._news.set()

    def end(self) -> None:
        """Ends the stream."""
        self._is_ended = True
        self._news.set()

    async def take(self) -> list[target_pb2.FeedbackMessage]:
        """Waits for a frame and the credit for it; none: the stream is to end. A frame may be larger than the credit that is left, for
        otherwise one larger than all credit would wait for ever."""
        while not self._is_ended:
            if self._credit_bytes > 0 and self._packed:
                frame = self._packed.popleft()
                self._credit_bytes -= len(frame.data)
                self._tally.sent(len(frame.data), frame.num_rows)
                return [target_pb2.FeedbackMessage(frame=frame.data)]
            if self._credit_bytes > 0 and self._waiting:
                loop = asyncio.get_running_loop()
                revision = self._offer.revision
                frames = await loop.run_in_executor(self._executor, pack, self._next(), revision)
                self._packed.extend(frames)
                continue
            self._news.clear()
            await self._news.wait()
        return []

    def _next(self) -> FeedbackReady:
        ready = self._waiting.popleft()
        self._waiting_bytes -= self._bytes_of(ready)
        return ready

    def _bytes_of(self, ready: FeedbackReady) -> int:
        of_states = 2 * len(self._offer.layers) * self._offer.width if ready.states else 0
        of_tops = features.TOP_BYTES * self._request.top_k if ready.tops else 0
        return ready.num_rows * (of_states + of_tops)


def pack(ready: FeedbackReady, revision: int, most_bytes: int = FRAME_BYTES) -> list[PackedFrame]:
    """The frames of what a pass gave. Waits for its device.

    Args:
        ready: What was picked.
        revision: Of the subscription.
        most_bytes: About the largest frame.
    """
    num_rows = ready.num_rows
    states_RLD = ready.states() if ready.states else np.zeros((num_rows, 0, 0), np.uint16)
    tokens_RK, logprobs_RK = ready.tops() if ready.tops else _no_tops(num_rows)
    whole = Features(
        revision=revision,
        handles_E=ready.handles_E,
        firsts_E=ready.firsts_E,
        starts_E=ready.starts_E,
        states_RLD=states_RLD,
        top_tokens_RK=tokens_RK,
        # Half precision ends above this; a token as unlikely is none of the likeliest of any use.
        top_logprobs_RK=np.maximum(logprobs_RK, -65_000.0).astype(np.float32),
        rejected=ready.rejected,
    )
    return [
        PackedFrame(data=features.encode(part), num_rows=part.num_rows)
        for part in whole.split(most_bytes)
    ]


def _no_tops(num_rows: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    return np.zeros((num_rows, 0), np.int64), np.zeros((num_rows, 0), np.float32)
