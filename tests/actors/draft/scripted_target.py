"""A target that does what a test tells it, over real gRPC on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from tests.actors.draft.bench import News, news_of

from outrider.actors.draft.state.draft_events import CandidatesSent, Resynced, VerdictsReceived
from outrider.actors.exchange import candidates, verdicts
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.rpc.grpc_server import bind, internal_server
from outrider.v1 import target_pb2, target_pb2_grpc, tree_pb2

TIMEOUT_S = 60.0
"""Bound on every wait of the tests."""


class ScriptedTarget(target_pb2_grpc.TargetServiceServicer):
    """Shakes hands as told, keeps what it hears, and says what the test says."""

    def __init__(self, hello: target_pb2.Hello, refusal: str | None, is_mute: bool) -> None:
        self.hello = hello
        self.refusal = refusal
        self.is_mute = is_mute
        self.hello_after_s = 0.0
        """How long the drafter's hello is on its way."""
        self.address = ""
        self.num_streams = 0
        self.heard: asyncio.Queue[target_pb2.DrafterMessage] = asyncio.Queue()
        self.say: asyncio.Queue[target_pb2.VerdictMessage | None] = asyncio.Queue()

    async def Exchange(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self,
        request_iterator: AsyncIterator[target_pb2.DrafterMessage],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        self.num_streams += 1
        requests = aiter(request_iterator)
        await self.heard.put(await anext(requests))
        await asyncio.sleep(self.hello_after_s)
        if self.is_mute:
            await asyncio.sleep(TIMEOUT_S)
        if self.refusal is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal)
        await context.write(target_pb2.VerdictMessage(hello=self.hello))

        async def listen() -> None:
            async for message in requests:
                await self.heard.put(message)

        listening = asyncio.create_task(listen())
        try:
            while (message := await self.say.get()) is not None:
                await context.write(message)
        finally:
            listening.cancel()

    async def hear(self) -> target_pb2.DrafterMessage:
        """The next message of the drafter."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.heard.get()

    async def hear_candidates(self, length: int) -> News:
        """The next candidates that grew from a base of this length."""
        while True:
            for news in heard_news(await self.hear()):
                if news.length == length:
                    return news


def heard_news(message: target_pb2.DrafterMessage) -> list[News]:
    """The candidates of a message."""
    if not message.candidates.frame:
        return []
    arrived = candidates.decode(message.candidates.frame, 1 << 32)
    return news_of(CandidatesSent(link=0, candidates=arrived))


def verdict_message(frame: VerdictsReceived) -> target_pb2.VerdictMessage:
    """Verdicts on the wire."""
    batch = target_pb2.VerdictBatch(frame=verdicts.encode(frame.verdicts))
    return target_pb2.VerdictMessage(verdicts=batch)


def resync_message(resync: Resynced) -> target_pb2.VerdictMessage:
    """Committed tokens on the wire."""
    return target_pb2.VerdictMessage(
        resync=target_pb2.Resync(
            handle=resync.key.handle,
            epoch=resync.epoch,
            base=tree_pb2.Base(length=resync.length, hash=resync.hash),
            tokens=resync.tokens,
            credits=resync.credits,
        )
    )


@asynccontextmanager
async def scripted_target(
    *,
    incarnation: int = 5,
    protocol_version: int = PROTOCOL_VERSION,
    vocab_size: int = 0,
    tokenizer_fingerprint: str = "",
    refusal: str | None = None,
    is_mute: bool = False,
) -> AsyncIterator[ScriptedTarget]:
    """Runs a scripted target."""
    hello = target_pb2.Hello(
        protocol_version=protocol_version,
        name="target",
        incarnation=incarnation,
        vocab_size=vocab_size,
        tokenizer_fingerprint=tokenizer_fingerprint,
    )
    # The generated class is abstract only to type checkers; drafters call nothing but the exchange.
    target = ScriptedTarget(hello, refusal, is_mute)  # type: ignore[abstract]
    server = internal_server()
    target_pb2_grpc.add_TargetServiceServicer_to_server(target, server)
    target.address = f"127.0.0.1:{bind(server, '127.0.0.1:0')}"
    await server.start()
    try:
        yield target
    finally:
        await server.stop(0.0)
