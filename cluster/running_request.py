"""A request while it runs: its sequences, and the messages that wait for the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from outrider.actors.outbox import Outbox
from outrider.cluster.recording import RequestRecording
from outrider.cluster.sequence import Sequence
from outrider.cluster.status_codes import Refusal
from outrider.v1 import generation_pb2


class RunningRequest:
    """A request from its checks to its end: the messages that wait for the client, and its sequences."""

    def __init__(self, request_id: str, recording: RequestRecording) -> None:
        self.request_id = request_id
        self.recording = recording
        self.sequences: list[Sequence] = []
        self.admission = generation_pb2.Admission(request_id=request_id)
        self.is_aborted = False
        # Bounded by the output itself: at most one message for each token of each sequence.
        self._outbox: Outbox[generation_pb2.GenerateResponse | Refusal] = Outbox()
        self._is_admitted = False

    def put(self, item: generation_pb2.GenerateResponse | Refusal) -> None:
        """Queues a message for the client; the admission comes before all others."""
        if not isinstance(item, Refusal):
            self.admit()
        self._outbox.put(item)

    def admit(self) -> None:
        """Queues the admission, once."""
        if not self._is_admitted:
            self._is_admitted = True
            self._outbox.put(generation_pb2.GenerateResponse(admission=self.admission))

    def abort(self) -> None:
        """Ends every sequence with what it has."""
        self.is_aborted = True
        for sequence in self.sequences:
            sequence.abort()

    async def run(
        self, write: Callable[[generation_pb2.GenerateResponse], Awaitable[None]]
    ) -> None:
        """Runs the sequences and writes what they say, until each is complete.

        Raises:
            Refusal: The request cannot go on.
        """
        refusal: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for sequence in self.sequences:
                    tasks.create_task(sequence.run(self.admit))
                await self._write_all(write)
        except* Refusal as group:
            refusal = group
            while isinstance(refusal, BaseExceptionGroup):
                refusal = refusal.exceptions[0]
        if refusal is not None:
            # Not raised above: up to Python 3.11.2 what is raised there comes out in a group again.
            raise refusal from None

    async def _write_all(
        self, write: Callable[[generation_pb2.GenerateResponse], Awaitable[None]]
    ) -> None:
        remaining = len(self.sequences)
        while remaining:
            for item in await self._outbox.take():
                if isinstance(item, Refusal):
                    raise item
                began_ns = self.recording.now_ns()
                await write(item)
                self.recording.written(item.index, began_ns, len(item.chunk.tokens))
                if item.HasField("completion"):
                    self.recording.completed(item.index, item.completion)
                    remaining -= 1
