"""The drafter's end of a stream of features: what is of another shape than was asked for reaches no method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
from tests.actors.draft.bench import make_attach
from tests.actors.draft.block.small_block import BlockBench, small_config, small_net
from tests.actors.draft.scripted_target import TIMEOUT_S

from outrider.actors.draft.service.feedback_receiver import FeedbackReceiver
from outrider.actors.draft.state.draft_events import Event, FeaturesReceived
from outrider.actors.exchange import features
from outrider.actors.exchange.features import Features
from outrider.actors.rpc.credentials import OPEN
from outrider.actors.rpc.grpc_server import bind, internal_server
from outrider.actors.tracing.recorder import Recorder
from outrider.v1 import target_pb2, target_pb2_grpc

CONFIG = small_config()


class Telling(target_pb2_grpc.TargetServiceServicer):
    """A target that tells these frames to whoever subscribes."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames

    async def Feedback(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self,
        request_iterator: AsyncIterator[target_pb2.FeedbackCommand],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        commands = aiter(request_iterator)
        for _ in range(2):
            await anext(commands)
        offer = target_pb2.FeedbackOffer(revision=5)
        await context.write(target_pb2.FeedbackMessage(offer=offer))
        for frame in self.frames:
            await context.write(target_pb2.FeedbackMessage(frame=frame))
        await asyncio.sleep(TIMEOUT_S)


def told(handle: int, num_layers: int) -> bytes:
    """States of the first four positions of a session."""
    return features.encode(
        Features(
            revision=5,
            handles_E=np.array([handle], np.uint64),
            firsts_E=np.array([0]),
            starts_E=np.array([0, 4]),
            states_RLD=np.zeros((4, num_layers, CONFIG.width), np.uint16),
            top_tokens_RK=np.zeros((4, 0), np.int64),
            top_logprobs_RK=np.zeros((4, 0), np.float32),
        )
    )


async def received(frames: list[bytes], link: int) -> list[Event]:
    """What a worker is told of frames."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    server = internal_server()
    # The generated class is abstract only to type checkers; receivers call nothing but this.
    target_pb2_grpc.add_TargetServiceServicer_to_server(Telling(frames), server)  # type: ignore[abstract]
    address = f"127.0.0.1:{bind(server, '127.0.0.1:0')}"
    await server.start()
    receiver = FeedbackReceiver(
        CONFIG.request,
        address,
        hello=target_pb2.Hello(stream=link),
        post=events.put_nowait,
        recorder=Recorder(),
        credentials=OPEN,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await receiver.open()
            return [await events.get() for _ in frames]
    finally:
        await receiver.close()
        await server.stop(0.0)


@pytest.mark.parametrize("num_layers", [1, 3])
async def test_another_targets_sessions_go_on(num_layers: int) -> None:
    """States of two targets are computed with together: those of one with other layers would end the sessions of both."""
    bench = BlockBench(small_net(CONFIG))
    attached = [make_attach(handle=link, link=link) for link in (1, 2)]
    for one in attached:
        bench.worker.post(one)
    bench.settle()
    for link, layers in ((1, len(CONFIG.taps)), (2, num_layers)):
        for event in await received([told(link, layers)], link):
            assert isinstance(event, FeaturesReceived)
            bench.worker.post(event)
    bench.settle()
    assert not bench.take_ended()
    assert bench.tree(attached[0].key).tokens
    stats = bench.worker.stats
    assert (stats.features_broken, stats.failures) == (1, 0)
