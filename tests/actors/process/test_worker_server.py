"""A worker behind a server: one thread, one end, and a failure that peers can see."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.actors.process.worker_server import WorkerServer

SERVICE = "outrider.test"


class Worker:
    """Emits a message once it runs, then works until it is stopped or told to fail."""

    def __init__(self, emit: Any) -> None:
        self.thread = threading.get_ident()
        self.ran_on: int | None = None
        self.end = threading.Event()
        self.fails = False
        self._emit = emit

    def run(self) -> None:
        """Works."""
        self.ran_on = threading.get_ident()
        self._emit("runs")
        assert self.end.wait(60)
        if self.fails:
            raise ArithmeticError("overflow")

    def stop(self) -> None:
        """Ends it."""
        self.end.set()


class Server(WorkerServer[Worker, str]):
    """The least that a subclass says."""

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        super().__init__(name="w", service=SERVICE, listen=listen, advertise_host=None)
        self.messages: list[str] = []
        self.ended: list[str] = []
        self.made: Worker | None = None
        self.may_load = threading.Event()
        self.may_load.set()
        self.error: Exception | None = None

    def _load(self) -> Worker:
        assert self.may_load.wait(60)
        if self.error is not None:
            raise self.error
        self.made = Worker(self._emit)
        return self.made

    def _serve(self, worker: Worker, server: grpc.aio.Server) -> None:
        assert worker is self.made

    def _deliver(self, message: str) -> None:
        self.messages.append(message)

    async def _end_streams(self, reason: str) -> None:
        self.ended.append(reason)


def threads() -> list[str]:
    """Names of the workers' threads that live."""
    return [thread.name for thread in threading.enumerate() if thread.name == "w-worker"]


async def until(condition: Any) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(60.0):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def health(address: str) -> int:
    """What the server says of its health."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its stubs lack the method
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        return int(answer.status)


async def test_the_worker_is_made_and_run_on_one_thread() -> None:
    """Its messages arrive on the loop, and it ends with the server; twice does no harm."""
    server = Server()
    address = await server.start()
    assert await health(address) == health_pb2.HealthCheckResponse.SERVING
    await until(lambda: server.messages == ["runs"])
    assert server.made is not None
    assert server.made.ran_on == server.made.thread != threading.get_ident()
    await server.stop()
    await server.stop()
    assert threads() == []


async def test_what_cannot_be_loaded_is_told_in_its_own_words() -> None:
    """And nothing is left."""
    server = Server()
    server.error = ValueError("no such model")
    with pytest.raises(ValueError, match="no such model"):
        await server.start()
    assert threads() == []


async def test_a_taken_port_ends_the_worker_before_it_ran() -> None:
    """Nobody could reach it."""
    first = Server()
    second = Server(await first.start())
    with pytest.raises(OSError, match="is the port taken"):
        await second.start()
    assert second.made is not None
    assert second.made.ran_on is None
    await first.stop()
    assert threads() == []


async def test_a_start_that_is_given_up_ends_after_loading() -> None:
    """Loading cannot be interrupted; what it brings does not run."""
    server = Server()
    server.may_load.clear()
    starting = asyncio.ensure_future(server.start())
    await until(threads)
    starting.cancel()
    await asyncio.sleep(0)
    server.may_load.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert server.made is not None
    assert server.made.ran_on is None
    assert threads() == []


async def test_a_worker_that_fails_is_seen() -> None:
    """Health says so, and the streams end with the reason."""
    server = Server()
    address = await server.start()
    assert server.made is not None
    server.made.fails = True
    server.made.end.set()
    await until(lambda: server.ended)
    assert server.ended == ["the worker of 'w' failed: ArithmeticError('overflow')"]
    assert await health(address) == health_pb2.HealthCheckResponse.NOT_SERVING
    async with asyncio.timeout(60.0):
        assert await server.failed() == server.ended[0]
    await server.stop()


async def test_a_report_that_cannot_be_delivered_is_a_failure() -> None:
    """What the worker said would be lost, and whoever waits for it would wait for ever."""

    class Losing(Server):
        def _deliver(self, message: str) -> None:
            raise KeyError(message)

    server = Losing()
    await server.start()
    async with asyncio.timeout(60.0):
        assert "was lost" in await server.failed()
    await server.stop()
