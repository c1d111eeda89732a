"""A trace that runs, for asyncio. `blocking_stream.py` has the same surface for threads."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from outrider.client.connection.connections import Connections
from outrider.client.connection.errors import OutriderError, Unavailable
from outrider.client.messages.trace_request import GRACE_S, SETTLE_S, Reception
from outrider.client.timeline.timeline_model import Timeline
from outrider.v1 import trace_pb2


class AsyncRunningTrace:
    """Records a service until it is over, or stopped. A context manager: leaving it stops it."""

    def __init__(self, connections: Connections, request: trace_pb2.TraceRequest) -> None:
        """Use `AsyncClient.start_trace`."""
        self._connections = connections
        self._reception = Reception(request)
        self._waits = connections.waits
        self._started = self._waits.flag()
        self._over = self._waits.flag()
        self._call = self._open()
        self._reader = self._waits.start(self._read(), "outrider-trace")

    async def wait_started(self) -> None:
        """Waits until every actor records. Returns, too, if that came to nothing; `result` says why."""
        await self._waits.wait(self._started, GRACE_S)

    @property
    def num_records(self) -> int:
        """Records that came so far."""
        return self._reception.num_records

    async def stop(self) -> None:
        """Ends the trace now. What happened before is in it. Idempotent."""
        if not self._over.is_set() and not self._reception.is_stopping:
            await self._waits.sleep(SETTLE_S)
            self._reception.is_stopping = True
            self._call.cancel()
        await self._waits.wait(self._over, GRACE_S)

    async def result(self) -> Timeline:
        """Waits for the end, and gives what was recorded.

        Raises:
            OutriderError: Nothing was; by cause, see `errors.py`.
        """
        await self._waits.wait(self._over, None)
        try:
            return self._reception.timeline()
        except OutriderError as error:
            raise await self._connections.explained(error, self._address) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _open(self) -> grpc.aio.UnaryStreamCall[trace_pb2.TraceRequest, trace_pb2.TraceResponse]:
        """Asks at the current address."""
        self._address = self._connections.current
        request = self._reception.request
        stub = self._connections.stub(self._address)
        return stub.Trace(request, timeout=request.seconds + GRACE_S)

    async def _read(self) -> None:
        """Takes in what comes, from the first address that answers."""
        try:
            await self._read_call()
            for _ in self._connections.addresses[1:]:
                if not isinstance(self._reception.failure, Unavailable):
                    break
                self._connections.rotate(self._address)
                self._call = self._open()
                if self._reception.is_stopping:  # while the call was being opened
                    self._call.cancel()
                await self._read_call()
        finally:
            self._started.set()
            self._over.set()

    async def _read_call(self) -> None:
        """Takes in what comes of one call."""
        self._reception.failure = None
        try:
            while isinstance(response := await self._call.read(), trace_pb2.TraceResponse):
                self._reception.add(response)
                self._started.set()
        except grpc.RpcError as error:
            self._reception.broke(error)
        except asyncio.CancelledError:
            # Cancelling a call makes its reader's wait end this way; a cancelled task passes it on.
            self._reception.stopped()
            if not self._reception.is_stopping:
                self._call.cancel()
                raise
