"""What gRPC takes for a message in processor time, between two processes of this machine: with one stream, and with many at the same time, as
a coordinator has them to its clients."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any

import grpc

from outrider.client.connection import event_loop

TURNS = 200
"""With messages over gRPC, timed."""

PAUSE_S = 0.005
"""Between messages over gRPC, as there are passes between them: a process that has slept is slower."""

STREAMS = 32
"""Messages at the same time, each on its own stream, beside one alone."""

MESSAGE_BYTES = 120
"""Of each."""

WARM_UP = 20
"""Turns that are not timed."""


def message_us(turns: int) -> dict[str, float]:
    """Processor microseconds of messages at one end, over gRPC streams to another process and back.

    Args:
        turns: How many are timed, with one stream and with `STREAMS`.
    """
    parent, child = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_echo, args=(child,), daemon=True)
    process.start()
    try:
        if not parent.poll(30.0):
            raise RuntimeError("the process that echoes did not start within 30 s")
        address = f"127.0.0.1:{parent.recv()}"
        one, many = (
            statistics.median(event_loop.run(_ask(address, streams, turns)) for _ in range(3))
            for streams in (1, STREAMS)
        )
    finally:
        process.terminate()
        process.join()
    # A turn with one stream reads a message and writes one; with many, it does so with each of them.
    each = min((many - one) / (2 * (STREAMS - 1)), one / 2)
    return {"wake_us": round(1e6 * (one - 2 * each), 1), "each_us": round(1e6 * each, 1)}


def _echo(pipe: Connection) -> None:
    event_loop.run(_serve_echo(pipe))


async def _serve_echo(pipe: Connection) -> None:
    async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    await server.wait_for_termination()


async def _ask(address: str, streams: int, turns: int) -> float:
    """Processor seconds of a turn in which every stream writes a message and then reads one."""
    payload = bytes(MESSAGE_BYTES)
    async with grpc.aio.insecure_channel(address) as channel:
        ask: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/bench.Echo/Echo"
        )
        calls = [ask() for _ in range(streams)]
        for turn in range(turns + WARM_UP):
            if turn == WARM_UP:
                began = time.process_time()
            await asyncio.sleep(PAUSE_S)
            for call in calls:
                await call.write(payload)
            for call in calls:
                await call.read()
        spent = time.process_time() - began
        for call in calls:
            await call.done_writing()
    return spent / turns
