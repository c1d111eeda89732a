"""One running generation, as an asynchronous iterator."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from outrider.client.connection.connections import Connections
from outrider.client.connection.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    OutriderError,
    Unavailable,
    broke_in_queue,
    closing_told,
    from_rpc_error,
)
from outrider.client.messages.results import Admission, Event
from outrider.client.messages.stream_progress import StreamProgress
from outrider.v1.generation_pb2 import AbortRequest, GenerateRequest, GenerateResponse

_ABORT_TIMEOUT_S = 2.0
"""Longest wait for the abort that clears the way of a resume; without an answer the resume is tried anyway."""


class AsyncGenerationStream:
    """The events of one generation: an admission, chunks, one completion for each sequence.

    Cancels the call when it is closed, when its iteration raises, and when it is dropped, as by `break` out of
    `async for event in client.stream(...)`; `async with client.stream(...) as stream` does so even while a name
    still holds it. A broken connection is taken up again unseen, as `stream_progress.py` says. One reads at a time: another
    that asks meanwhile gets `InvalidRequest`, and the one that reads goes on.
    """

    def __init__(
        self, connections: Connections, progress: StreamProgress, *, timeout_s: float
    ) -> None:
        self._connections = connections
        self._progress = progress
        self._timeout_s = timeout_s
        self._deadline_s: float | None = None
        self._address = ""
        self._call: grpc.aio.UnaryStreamCall[GenerateRequest, GenerateResponse] | None = None
        self._closed = connections.waits.flag()
        self._is_cut = False
        """Closed by its client, and nobody has been told yet."""
        self._turn = threading.Lock()
        """Held by whoever reads, which may be a thread or a task. Nobody waits for it."""

    @property
    def request_id(self) -> str:
        """The name under which the request can be aborted."""
        return self._progress.request_id

    @property
    def admission(self) -> Admission | None:
        """What the service settled; None before the first event."""
        return self._progress.admission

    @property
    def resumes(self) -> int:
        """How often the stream broke and was taken up again."""
        return self._progress.resumes

    def cancel(self) -> None:
        """Ends the generation. Idempotent; a task that waits for an event gets `Cancelled`."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    def cut(self) -> None:
        """As `cancel`, for a client that closes: whoever asks for the next event gets `Cancelled`, unless all have come."""
        self._is_cut = not self._closed.is_set()
        self.cancel()

    async def aclose(self) -> None:
        """As `cancel`."""
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._closed.is_set():
            is_told, self._is_cut = not self._is_cut, False
            if is_told or self._progress.is_complete:
                raise StopAsyncIteration
            raise self._cancelled()
        if not self._turn.acquire(blocking=False):
            raise InvalidRequest(
                "this stream is being read already; events go to one thread or task, which may pass them on",
                request_id=self.request_id,
            )
        try:
            event = await self._next_event()
        except BaseException:
            self.cancel()
            self._is_cut = False
            raise
        finally:
            self._turn.release()
        if event is None:
            self.cancel()
            raise StopAsyncIteration
        return event

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the event loop may be gone, and the call with it
            self.cancel()

    async def _next_event(self) -> Event | None:
        """The next event; None at the end."""
        while True:
            try:
                response = await self._read()
            except grpc.RpcError as error:
                if self._progress.is_complete:
                    return None
                if self._closed.is_set():
                    raise self._cancelled() from error
                await self._reopen(
                    from_rpc_error(error, request_id=self.request_id),
                    was_queued=broke_in_queue(error),
                )
                continue
            if response is None:
                self._progress.end()
                return None
            event = self._progress.accept(response)
            if event is not None:
                return event

    async def _read(self) -> GenerateResponse | None:
        """The next message, after opening the call if there is none; None at the end."""
        if self._call is None:
            left_s = self._left_s()
            if left_s <= 0:
                raise DeadlineExceeded(
                    f"the request was not done within {self._timeout_s:g} s",
                    code=grpc.StatusCode.DEADLINE_EXCEEDED,
                    request_id=self.request_id,
                    received_tokens=self._progress.token_ids,
                )
            self._connections.register(self)
            self._address = self._connections.pick(self._progress.refused)
            stub = self._connections.stub(self._address)
            self._call = stub.Generate(self._progress.next_request(), timeout=left_s)
            if self._closed.is_set():  # cancelled by another thread while the call was being opened
                self._call.cancel()
        with closing_told(self._cancelled):
            response = await self._call.read()
        return response if isinstance(response, GenerateResponse) else None

    async def _reopen(self, error: OutriderError, *, was_queued: bool) -> None:
        """Gets ready to open the call again, or raises the error."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
        left_s = self._left_s()
        try:
            retry = self._progress.retry(
                error,
                address=self._address,
                was_queued=was_queued,
                now_s=monotonic(),
                left_s=left_s,
                jitter=random.random(),
            )
        except OutriderError as last:
            raise await self._connections.explained(last, self._address) from error
        if isinstance(error, Unavailable):
            self._connections.rotate(self._address)
        if retry.abort_first:
            stub = self._connections.stub(self._address)
            with suppress(grpc.RpcError), closing_told(self._cancelled):
                await stub.Abort(
                    AbortRequest(request_id=self.request_id),
                    timeout=min(_ABORT_TIMEOUT_S, left_s),
                )
        await self._pause(retry.delay_s)

    async def _pause(self, seconds: float) -> None:
        """Waits before the next try.

        Raises:
            Cancelled: `cancel` was called meanwhile.
        """
        if await self._connections.waits.wait(self._closed, seconds):
            raise self._cancelled()

    def _cancelled(self) -> Cancelled:
        """What a wait ends with after `cancel`."""
        return Cancelled(
            "the stream was cancelled",
            request_id=self.request_id,
            received_tokens=self._progress.token_ids,
        )

    def _left_s(self) -> float:
        """Seconds to the deadline, which the first use sets; 0 or less once it has passed."""
        now_s = monotonic()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._timeout_s
        return self._deadline_s - now_s
