"""What waits for a client."""

from __future__ import annotations

import asyncio

from outrider.actors.tracing.recorder import Recorder
from outrider.cluster.metrics.books import RequestBooks
from outrider.cluster.metrics.request_recording import RequestRecording
from outrider.cluster.requests.client_stream import MAX_UNITED, ClientStream
from outrider.cluster.requests.session_commands import Deliver
from outrider.v1 import generation_pb2

Message = generation_pb2.GenerateResponse


class Client:
    """Reads one message whenever it is let."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = asyncio.Semaphore(0)
        self._read = asyncio.Event()

    async def has(self, num_messages: int) -> None:
        """Waits until so many messages have come."""
        while len(self.messages) < num_messages:
            self._read.clear()
            await self._read.wait()

    async def write(self, message: Message | bytes) -> None:
        """Takes a message once the client reads."""
        await self.reads.acquire()
        self.messages.append(
            message if isinstance(message, Message) else Message.FromString(message)
        )
        self._read.set()


def _stream() -> ClientStream:
    recording = RequestRecording(Recorder(), 1, "r", RequestBooks())
    return ClientStream("r", recording)


def _completion(index: int) -> Message:
    return Message(index=index, completion=generation_pb2.Completion())


def _told(token: int) -> list[generation_pb2.Token]:
    return [generation_pb2.Token(id=token, logprob=-1.0)]


async def test_what_is_committed_while_a_client_is_busy_comes_in_one_message() -> None:
    """For each sequence, in order, after the admission and before its completion."""
    stream, client = _stream(), Client()
    task = asyncio.create_task(stream.write_all(client.write, num_sequences=2))
    for token in range(5):
        for index in (0, 1):
            stream.deliver(index, Deliver(f"{token} ", [10 * index + token], [index - 1]))
    for index in (1, 0):
        stream.complete(_completion(index))
    client.reads.release()
    for _ in range(8):
        client.reads.release()
    async with asyncio.timeout(60.0):
        await task
    assert [one.WhichOneof("event") for one in client.messages] == [
        *("admission", "chunk", "chunk", "completion", "completion")
    ]
    for index, message in enumerate(client.messages[1:3]):
        assert message.index == index
        assert message.chunk.text == "0 1 2 3 4 "
        assert [token.id for token in message.chunk.tokens] == [10 * index + n for n in range(5)]
    assert [one.index for one in client.messages[3:]] == [1, 0]


async def test_a_reader_that_keeps_up_gets_each_commit_at_once() -> None:
    """One message a commit."""
    stream, client = _stream(), Client()
    for _ in range(9):
        client.reads.release()
    task = asyncio.create_task(stream.write_all(client.write, num_sequences=1))
    for token in range(3):
        stream.deliver(0, Deliver("x", [token], [-1]))
        async with asyncio.timeout(60.0):
            await client.has(token + 2)
    stream.complete(_completion(0))
    await task
    assert [len(message.chunk.tokens) for message in client.messages] == [0, 1, 1, 1, 0]


async def test_messages_stay_bounded() -> None:
    """One that has grown to its bound is followed by another; nothing is lost."""
    stream, client = _stream(), Client()
    for token in range(3 * MAX_UNITED):
        stream.deliver(0, Deliver("x", [token], [-1]))
    stream.complete(_completion(0))
    for _ in range(9):
        client.reads.release()
    await stream.write_all(client.write, num_sequences=1)
    chunks = [message.chunk for message in client.messages if message.HasField("chunk")]
    assert [len(chunk.tokens) for chunk in chunks] == [MAX_UNITED] * 3
    assert [token.id for chunk in chunks for token in chunk.tokens] == [*range(3 * MAX_UNITED)]


async def test_log_probabilities_and_tokens_without_are_not_mixed() -> None:
    """A message has them for all of its tokens or for none."""
    stream, client = _stream(), Client()
    stream.deliver(0, Deliver("a", [1], [-1], _told(1)))
    stream.deliver(0, Deliver("b", [2], [-1], _told(2)))
    stream.deliver(0, Deliver("c", [3], [-1]))
    stream.complete(_completion(0))
    for _ in range(9):
        client.reads.release()
    await stream.write_all(client.write, num_sequences=1)
    chunks = [message.chunk for message in client.messages if message.HasField("chunk")]
    assert [[token.id for token in chunk.tokens] for chunk in chunks] == [[1, 2], [3]]
    assert [token.HasField("logprob") for token in chunks[0].tokens] == [True, True]
