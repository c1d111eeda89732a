"""What waits for one client, and its way onto the client's stream.

A client that reads more slowly than tokens come holds nobody back: what is committed meanwhile goes into the message that waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from outrider.actors.rpc.outbox import Outbox
from outrider.cluster.metrics.request_recording import RequestRecording
from outrider.cluster.requests.chunk_bytes import chunk_bytes
from outrider.cluster.requests.session_commands import Deliver
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import generation_pb2

Write = Callable[[generation_pb2.GenerateResponse | bytes], Awaitable[None]]
"""Writes a message, or the bytes of one; returns when there is room for the next."""

MAX_UNITED = 256
"""Tokens of a message to which more are added. With twenty alternatives each it stays far below what clients take."""


class ClientStream:
    """The messages of one request."""

    def __init__(self, request_id: str, recording: RequestRecording) -> None:
        self.admission = generation_pb2.Admission(request_id=request_id)
        """The first message, which is sent before all others."""
        self._recording = recording
        # Bounded by the output itself.
        self._outbox: Outbox[generation_pb2.GenerateResponse | tuple[int, Deliver] | Refusal] = (
            Outbox()
        )
        self._waiting: dict[int, Deliver] = {}
        """For each sequence the last chunk that is not being written yet."""
        self._is_admitted = False

    def admit(self) -> None:
        """Queues the admission, once."""
        if not self._is_admitted:
            self._is_admitted = True
            self._outbox.put(generation_pb2.GenerateResponse(admission=self.admission))

    def refuse(self, refusal: Refusal) -> None:
        """Queues the end of the request."""
        self._outbox.put(refusal)

    def complete(self, completion: generation_pb2.GenerateResponse) -> None:
        """Queues the end of a sequence."""
        self.admit()
        self._outbox.put(completion)

    def deliver(self, index: int, chunk: Deliver) -> None:
        """Queues text and tokens of a sequence."""
        waiting = self._waiting.get(index)
        if (
            waiting is not None
            and len(waiting.ids) < MAX_UNITED
            and bool(waiting.told) == bool(chunk.told)
        ):
            waiting.add(chunk)
            return
        self.admit()
        self._waiting[index] = chunk
        self._outbox.put((index, chunk))

    async def write_all(self, write: Write, *, num_sequences: int) -> None:
        """Writes what is queued until so many sequences are complete.

        Raises:
            Refusal: The request cannot go on.
        """
        recording = self._recording
        while num_sequences:
            for item in await self._outbox.take():
                if isinstance(item, Refusal):
                    raise item
                began_ns = recording.now_ns()
                if isinstance(item, tuple):
                    index, chunk = item
                    if self._waiting.get(index) is chunk:
                        del self._waiting[index]
                    await write(chunk_bytes(index, chunk))
                    recording.written(index, began_ns, len(chunk.ids))
                    continue
                await write(item)
                recording.written(item.index, began_ns, 0)
                if item.HasField("completion"):
                    recording.completed(item.index, item.completion)
                    num_sequences -= 1
