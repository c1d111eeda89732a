"""What runs for a while, for threads: a generation, as an iterator, and a trace. Each runs its asyncio twin by `finished`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from outrider.client.async_stream import AsyncGenerationStream
from outrider.client.async_trace import AsyncRunningTrace
from outrider.client.connection.waits import finished
from outrider.client.messages.results import Admission, Event
from outrider.client.timeline.timeline_model import Timeline


class GenerationStream:
    """The events of one generation: an admission, chunks, one completion for each sequence.

    Cancels the call when it is closed, when its iteration raises, and when it is dropped, as by `break` out of
    `for event in client.stream(...)`; `with client.stream(...) as stream` does so even while a name still holds
    it. A broken connection is taken up again unseen, as `stream_progress.py` says. One thread iterates, and another that does
    meanwhile gets `InvalidRequest`; any may cancel.
    """

    def __init__(self, stream: AsyncGenerationStream) -> None:
        """Use `Client.stream`."""
        self._stream = stream

    @property
    def request_id(self) -> str:
        """The name under which the request can be aborted."""
        return self._stream.request_id

    @property
    def admission(self) -> Admission | None:
        """What the service settled; None before the first event."""
        return self._stream.admission

    @property
    def resumes(self) -> int:
        """How often the stream broke and was taken up again."""
        return self._stream.resumes

    def cancel(self) -> None:
        """Ends the generation. Idempotent; a thread that waits for an event gets `Cancelled`."""
        self._stream.cancel()

    def close(self) -> None:
        """As `cancel`."""
        self._stream.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            return finished(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


class RunningTrace:
    """Records a service until it is over, or stopped. A context manager: leaving it stops it.

    with client.start_trace(seconds=60) as trace:
        ...
    timeline = trace.result()
    """

    def __init__(self, trace: AsyncRunningTrace) -> None:
        """Use `Client.start_trace`."""
        self._trace = trace

    def wait_started(self) -> None:
        """Waits until every actor records. Returns, too, if that came to nothing; `result` says why."""
        finished(self._trace.wait_started())

    @property
    def num_records(self) -> int:
        """Records that came so far."""
        return self._trace.num_records

    def stop(self) -> None:
        """Ends the trace now. What happened before is in it. Idempotent."""
        finished(self._trace.stop())

    def result(self) -> Timeline:
        """Waits for the end, and gives what was recorded.

        Raises:
            OutriderError: Nothing was; by cause, see `errors.py`.
        """
        return finished(self._trace.result())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
