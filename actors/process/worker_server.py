"""A worker on a thread of its own behind a gRPC server: loaded, started, failed and ended together.

What targets and drafters have in common; neither Ray nor a model is known here. Invariants: the worker is made and run on one
thread, because the arithmetic's own threads belong to the thread that first computes; it runs only once others can reach it;
whatever way `start` fails, nothing is left running; a worker that fails makes the server unhealthy, ends its streams and is
told by `failed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2

from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.rpc.grpc_server import advertised, bind, internal_server, serve_health

JOIN_TIMEOUT_S = 30.0
"""How long stopping waits for the running pass, which cannot be interrupted. More than the longest pass."""

_log = structlog.get_logger(__name__)


class Worker(Protocol):
    """Does the arithmetic."""

    def run(self) -> None:
        """Works until `stop`; on the thread that made it."""
        ...

    def stop(self) -> None:
        """Ends `run` after the running pass. From any thread, also before `run`."""
        ...


WorkerT = TypeVar("WorkerT", bound=Worker)
MessageT = TypeVar("MessageT")
T = TypeVar("T")


class WorkerServer(ABC, Generic[WorkerT, MessageT]):
    """Runs a worker and serves it. Subclasses say what is loaded and who serves."""

    def __init__(
        self,
        *,
        name: str,
        service: str,
        listen: str,
        advertise_host: str | None,
        credentials: Credentials = OPEN,
    ) -> None:
        """Starts nothing.

        Args:
            name: Of the actor, for threads and logs.
            service: Full name of the gRPC service.
            listen: Address to listen on.
            advertise_host: Host that others reach it at; None is the one of `listen`.
            credentials: What calls must carry.
        """
        self._name = name
        self._service = service
        self._listen = listen
        self._advertise_host = advertise_host
        self._credentials = credentials
        self.worker: WorkerT | None = None
        """What is served; None before it is loaded and after the end."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: grpc.aio.Server | None = None
        self._health: health.aio.HealthServicer | None = None
        self._failing: asyncio.Task[None] | None = None
        self._failure = ""
        self._has_failed = asyncio.Event()
        self._may_work = threading.Event()
        self._is_ending = False
        self.description = ""
        """What was chosen for the worker, for people."""
        self.internal_address = ""
        """Where other actors reach it, once it has started."""

    @abstractmethod
    def _load(self) -> WorkerT:
        """Makes the worker. On its thread; may take minutes."""

    @abstractmethod
    def _serve(self, worker: WorkerT, server: grpc.aio.Server) -> None:
        """Adds the servicer to the server. On the loop."""

    @abstractmethod
    def _deliver(self, message: MessageT) -> None:
        """Takes what the worker has emitted. On the loop."""

    @abstractmethod
    async def _end_streams(self, reason: str) -> None:
        """Ends every stream, so that sessions move on: the worker has failed. On the loop."""

    async def _before_end(self) -> None:
        """Is called before the server is stopped."""
        return

    async def start(self) -> str:
        """Loads the worker, warms it up, and serves.

        Returns:
            The address that others reach it at.

        Raises:
            ValueError, OSError: The model cannot be loaded, or the address cannot be bound; the message says why.
        """
        self._loop = asyncio.get_running_loop()
        loaded: Future[WorkerT] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(loaded,), name=f"{self._name}-worker", daemon=True
        )
        self._thread.start()
        try:
            self.worker = await asyncio.wrap_future(loaded)
            self._server = internal_server(self._credentials)
            self._serve(self.worker, self._server)
            self._health = await serve_health(self._server, self._service)
            port = bind(self._server, self._listen, self._credentials.tls)
            await self._server.start()
        except BaseException:
            await self.stop(0.0)
            raise
        self._may_work.set()
        self.internal_address = advertised(self._listen, self._advertise_host, port)
        return self.internal_address

    async def failed(self) -> str:
        """Waits until the worker has failed and its streams have ended; says why."""
        await self._has_failed.wait()
        return self._failure

    async def stop(self, grace_s: float = 2.0) -> None:
        """Ends the streams within the grace and the worker after its pass. Idempotent."""
        if self._failing is not None:
            self._failing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._failing
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
        await self._before_end()
        if self._server is not None:
            await self._server.stop(grace_s)
        if self.worker is not None:
            self.worker.stop()
        self._is_ending = True
        self._may_work.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, JOIN_TIMEOUT_S)
        self._health = self._server = self.worker = self._thread = None

    # -- on the worker's thread ------------------------------------------------------------------------------------

    def _work(self, loaded: Future[WorkerT]) -> None:
        # From here on nobody cancels it: loading cannot be interrupted, and its end is waited for.
        loaded.set_running_or_notify_cancel()
        try:
            worker = self._load()
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            loaded.set_exception(error)
            return
        loaded.set_result(worker)
        self._may_work.wait()
        if self._is_ending:
            return
        try:
            worker.run()
        except Exception as error:  # noqa: BLE001 - the thread ends here; the server tells its peers
            _log.exception("worker failed", actor=self._name)
            self._on_loop(self._worker_failed, f"the worker of {self._name!r} failed: {error!r}")

    def _emit(self, message: MessageT) -> None:
        """Hands a message to the loop."""
        self._on_loop(self._deliver, message)

    def _on_loop(self, callback: Callable[[T], None], argument: T) -> None:
        assert self._loop is not None, "the thread is started by `start`"
        # The loop is closed only if it ended without `stop`; there is nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._guarded, callback, argument)

    def _guarded(self, callback: Callable[[T], None], argument: T) -> None:
        """What the worker said must not be lost: a defect on the way ends the server as one of the worker does."""
        try:
            callback(argument)
        except Exception as error:  # noqa: BLE001 - the loop would log it and go on
            _log.exception("a report of the worker was lost", actor=self._name)
            self._worker_failed(f"a report of the worker of {self._name!r} was lost: {error!r}")

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _worker_failed(self, reason: str) -> None:
        if self._failing is None:
            self._failing = asyncio.ensure_future(self._fail(reason))

    async def _fail(self, reason: str) -> None:
        """A server without its worker is of no use."""
        if self._health is not None:
            for service in ("", self._service):
                await self._health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._end_streams(reason)
        self._failure = reason
        self._has_failed.set()
