"""Asking a coordinator in front of a scripted target: requests, and what their streams and refusals say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.cluster.front import Front
from tests.cluster.scripted import scripted_token

from outrider.v1 import generation_pb2, sampling_pb2

Start = Callable[..., Awaitable[Front]]
"""Makes a coordinator in front of the target, and waits until it is ready."""

PROMPT = "abc"


class Output:
    """What a stream said."""

    def __init__(self) -> None:
        self.admission: generation_pb2.Admission | None = None
        self.text: dict[int, str] = {}
        self.ids: dict[int, list[int]] = {}
        self.completions: dict[int, generation_pb2.Completion] = {}

    def take(self, message: generation_pb2.GenerateResponse) -> None:
        """Notes a message; order and number of events are checked."""
        match message.WhichOneof("event"):
            case "admission":
                assert self.admission is None, "admitted twice"
                self.admission = message.admission
            case "chunk":
                assert self.admission is not None, "a chunk before the admission"
                assert message.index not in self.completions, "a chunk after the completion"
                self.text[message.index] = self.text.get(message.index, "") + message.chunk.text
                ids = self.ids.setdefault(message.index, [])
                ids.extend(token.id for token in message.chunk.tokens)
            case "completion":
                assert self.admission is not None, "a completion before the admission"
                assert message.index not in self.completions, "completed twice"
                self.completions[message.index] = message.completion


async def generate(front: Front, request: generation_pb2.GenerateRequest) -> Output:
    """Runs a request to its end."""
    output = Output()
    async for message in front.stub.Generate(request, timeout=60.0):
        output.take(message)
    return output


def ask(**sampling: Any) -> generation_pb2.GenerateRequest:
    """A request of text."""
    return generation_pb2.GenerateRequest(
        text=PROMPT, sampling=sampling_pb2.SamplingOptions(**{"seed": 3, **sampling})
    )


def expected(num_tokens: int, seed: int = 3) -> str:
    """The scripted output."""
    prompt = list(PROMPT.encode())
    return bytes(scripted_token(prompt, seed, at) for at in range(num_tokens)).decode()


async def ready(front: Front) -> None:
    """Waits until the service accepts requests."""
    async with asyncio.timeout(60.0):
        while True:
            status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
            if status.accepting:
                return
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(60.0):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def refusal(front: Front, request: Any) -> grpc.aio.AioRpcError:
    """How a request is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        async for _ in front.stub.Generate(request, timeout=60.0):
            pass
    return failed.value


def metadata(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """Trailing metadata of a refusal."""
    return dict(error.trailing_metadata() or ())


def bad(**fields: Any) -> generation_pb2.GenerateRequest:
    """A request of some fields."""
    return generation_pb2.GenerateRequest(**fields)
