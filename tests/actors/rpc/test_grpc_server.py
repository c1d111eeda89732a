"""Options that every internal server and channel shares."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.actors.rpc import grpc_server

SPEED_UP = 15
"""Divides the times between probes: one a second, the most that gRPC sends."""


def quick(options: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The same options with shorter times, but for that of an answer, which a busy machine needs."""
    return tuple(
        (key, value // SPEED_UP if key.endswith("_ms") and "timeout" not in key else value)
        for key, value in options
    )


async def test_probes_of_a_silent_stream_do_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server puts up with the probes that our channels send: one too many is the third."""
    monkeypatch.setattr(grpc_server, "CHANNEL_OPTIONS", (*quick(grpc_server.CHANNEL_OPTIONS),))
    server = grpc_server.internal_server()
    await grpc_server.serve_health(server, "outrider.test")
    port = grpc_server.bind(server, "127.0.0.1:0")
    await server.start()
    probe_s = dict(grpc_server.CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] / 1e3
    async with grpc_server.internal_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its stubs lack the method
        call = stub.Watch(health_pb2.HealthCheckRequest(service="outrider.test"), timeout=60)
        messages = call.__aiter__()
        await anext(messages)
        silence = asyncio.ensure_future(anext(messages))
        await asyncio.wait([silence], timeout=4.5 * probe_s)
        assert not silence.done(), silence
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await silence
    await server.stop(None)


async def test_a_taken_port_is_told() -> None:
    """Not bound twice, and the address is in the message."""
    first, second = grpc_server.internal_server(), grpc_server.internal_server()
    port = grpc_server.bind(first, "127.0.0.1:0")
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: is the port taken"):
        grpc_server.bind(second, f"127.0.0.1:{port}")
    await first.stop(None)
    await second.stop(None)


def test_the_address_told_to_others() -> None:
    """The host told, or the one that is listened on."""
    assert grpc_server.advertised("0.0.0.0:0", "10.0.0.7", 99) == "10.0.0.7:99"
    assert grpc_server.advertised("127.0.0.1:0", None, 99) == "127.0.0.1:99"


async def test_a_proxy_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in the way of no actor; one for gRPC alone is meant."""
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    server = grpc_server.internal_server()
    await grpc_server.serve_health(server)
    port = grpc_server.bind(server, "127.0.0.1:0")
    await server.start()

    async def ask() -> None:
        channel = grpc_server.internal_channel(f"127.0.0.1:{port}", is_shared=False)
        async with channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # its stubs lack the method
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)

    await ask()
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
        await ask()
    await server.stop(None)
