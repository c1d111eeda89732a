"""A request while it runs: its sequences, and the stream to its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from outrider.cluster.metrics.request_recording import RequestRecording
from outrider.cluster.requests.client_stream import ClientStream, Write
from outrider.cluster.requests.sequence import Sequence
from outrider.cluster.validation.status_codes import Refusal


class RunningRequest:
    """A request from its checks to its end."""

    def __init__(self, request_id: str, recording: RequestRecording) -> None:
        self.request_id = request_id
        self.recording = recording
        self.stream = ClientStream(request_id, recording)
        self.sequences: list[Sequence] = []
        self.is_aborted = False

    def abort(self) -> None:
        """Ends every sequence with what it has."""
        self.is_aborted = True
        for sequence in self.sequences:
            sequence.abort()

    async def run(
        self, write: Write, *, before: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Runs the sequences and writes what they say, until each is complete.

        Args:
            write: Writes a message to the client.
            before: What is done before the first message, while the sequences wait for slots.

        Raises:
            Refusal: The request cannot go on.
        """
        refusal: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for sequence in self.sequences:
                    tasks.create_task(sequence.run())
                if before is not None:
                    await before()
                await self.stream.write_all(write, num_sequences=len(self.sequences))
        except* Refusal as group:
            refusal = group
            while isinstance(refusal, BaseExceptionGroup):
                refusal = refusal.exceptions[0]
        if refusal is not None:
            # Not raised above: up to Python 3.11.2 what is raised there comes out in a group again.
            raise refusal from None
