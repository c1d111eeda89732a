"""A target actor without Ray: model, worker thread and gRPC server, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2

from outrider.actors.engine.load import load_engine
from outrider.actors.engine.priority import lower_priority
from outrider.actors.engine.timed import TimedEngine
from outrider.actors.engine.tokenizer import load_tokenizer, tokenizer_fingerprint
from outrider.actors.grpc_server import advertised, bind, internal_server, serve_health
from outrider.actors.target.events import Output
from outrider.actors.target.servicer import TargetServicer
from outrider.actors.target.settings import TargetSettings
from outrider.actors.target.worker import TargetWorker
from outrider.actors.trace import Recorder
from outrider.v1 import target_pb2, target_pb2_grpc

JOIN_TIMEOUT_S = 30.0
"""How long stopping waits for the running pass, which cannot be interrupted."""

SERVICE = target_pb2.DESCRIPTOR.services_by_name["TargetService"].full_name

_log = structlog.get_logger(__name__)


class TargetServer:
    """Runs a target."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings
        self._recorder = Recorder()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._worker: TargetWorker | None = None
        self._servicer: TargetServicer | None = None
        self._server: grpc.aio.Server | None = None
        self._health: health.aio.HealthServicer | None = None
        self._failing: asyncio.Task[None] | None = None
        self._may_work = threading.Event()

    async def start(self) -> str:
        """Loads the model, warms it up, and serves.

        Returns:
            The address that others reach it at.

        Raises:
            ValueError, OSError: The model cannot be loaded, or the address cannot be bound; the message says why.
        """
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        loaded: Future[tuple[TimedEngine, str, TargetWorker]] = Future()
        # The arithmetic's own threads belong to the thread that first computes, so it is the one that loads.
        self._thread = threading.Thread(
            target=self._work, args=(loaded,), name=f"{settings.name}-worker", daemon=True
        )
        self._thread.start()
        try:
            engine, fingerprint, worker = await asyncio.wrap_future(loaded)
            self._worker = worker
            self._servicer = TargetServicer(settings, engine, fingerprint, worker, self._recorder)
            self._server = internal_server()
            target_pb2_grpc.add_TargetServiceServicer_to_server(self._servicer, self._server)
            self._health = await serve_health(self._server, SERVICE)
            port = bind(self._server, settings.listen)
            await self._server.start()
        except BaseException:
            await self.stop(0.0)
            raise
        self._may_work.set()
        address = advertised(settings.listen, settings.advertise_host, port)
        _log.info("target serves", target=settings.name, model=engine.spec.name, address=address)
        return address

    async def stop(self, grace_s: float = 2.0) -> None:
        """Ends the streams within the grace and the worker after its pass."""
        if self._failing is not None:
            self._failing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._failing
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
        if self._server is not None:
            await self._server.stop(grace_s)
        if self._worker is not None:
            self._worker.stop()
        self._may_work.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, JOIN_TIMEOUT_S)
        self._health = self._servicer = self._server = self._worker = self._thread = None

    # -- on the worker's thread ------------------------------------------------------------------------------------

    def _work(self, loaded: Future[tuple[TimedEngine, str, TargetWorker]]) -> None:
        settings = self._settings
        try:
            engine, fingerprint = self._load()
            worker = TargetWorker(engine, settings, self._emit, recorder=self._recorder)
            worker.warm_up()
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            loaded.set_exception(error)
            return
        loaded.set_result((engine, fingerprint, worker))
        self._may_work.wait()
        try:
            worker.run()
        except Exception as error:  # noqa: BLE001 - the thread ends here; the server tells its peers
            _log.exception("target worker failed", target=settings.name)
            self._call_loop(self._worker_failed, f"the target worker failed: {error!r}")

    def _load(self) -> tuple[TimedEngine, str]:
        settings = self._settings.engine
        lower_priority(settings.niceness)
        engine = TimedEngine(load_engine(settings))
        tokenizer = load_tokenizer(settings.model, allow_remote_code=settings.allow_remote_code)
        return engine, tokenizer_fingerprint(tokenizer) if tokenizer is not None else ""

    def _emit(self, outputs: list[Output]) -> None:
        self._call_loop(self._deliver, outputs)

    def _call_loop(self, callback: Callable[[Any], None], argument: object) -> None:
        assert self._loop is not None, "the thread is started by `start`"
        # The loop is closed only if it ended without `stop`; there is nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, argument)

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _deliver(self, outputs: list[Output]) -> None:
        if self._servicer is not None:
            self._servicer.deliver(outputs)

    def _worker_failed(self, reason: str) -> None:
        self._failing = asyncio.ensure_future(self._fail(reason))

    async def _fail(self, reason: str) -> None:
        """A target without its worker is of no use: unhealthy, and its streams end, so that sessions move on."""
        if self._health is not None:
            for service in ("", SERVICE):
                await self._health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
        if self._servicer is not None:
            self._servicer.end_streams(reason)
