"""A trace that runs, for threads. `async_trace.py` has the same surface for asyncio."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import grpc

from outrider.client.blocking_stream import Connections
from outrider.client.connection.errors import OutriderError
from outrider.client.messages.trace_request import GRACE_S, SETTLE_S, Reception
from outrider.client.timeline.timeline_model import Timeline
from outrider.v1 import trace_pb2


class RunningTrace:
    """Records a service until it is over, or stopped. A context manager: leaving it stops it.

    with client.start_trace(seconds=60) as trace:
        ...
    timeline = trace.result()
    """

    def __init__(self, connections: Connections, request: trace_pb2.TraceRequest) -> None:
        """Use `Client.start_trace`."""
        self._connections = connections
        self._address = connections.current
        stub = connections.stub(self._address)
        self._reception = Reception(request)
        self._started = threading.Event()
        self._call = stub.Trace(request, timeout=request.seconds + GRACE_S)
        self._thread = threading.Thread(target=self._read, name="outrider-trace", daemon=True)
        self._thread.start()

    def wait_started(self) -> None:
        """Waits until every actor records. Returns, too, if that came to nothing; `result` says why."""
        self._started.wait(GRACE_S)

    @property
    def num_records(self) -> int:
        """Records that came so far."""
        return self._reception.num_records

    def stop(self) -> None:
        """Ends the trace now. What happened before is in it. Idempotent."""
        if self._thread.is_alive() and not self._reception.is_stopping:
            time.sleep(SETTLE_S)
            self._reception.is_stopping = True
            self._call.cancel()
        self._thread.join(GRACE_S)

    def result(self) -> Timeline:
        """Waits for the end, and gives what was recorded.

        Raises:
            OutriderError: Nothing was; by cause, see `errors.py`.
        """
        self._thread.join()
        try:
            return self._reception.timeline()
        except OutriderError as error:
            raise self._connections.explained(error, self._address) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _read(self) -> None:
        try:
            for response in self._call:
                self._reception.add(response)
                self._started.set()
        except grpc.RpcError as error:
            self._reception.broke(error)
        finally:
            self._started.set()
