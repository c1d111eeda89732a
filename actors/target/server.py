"""A target actor without Ray: model, worker thread and gRPC server, started and stopped together."""

from __future__ import annotations

import asyncio
import threading

import grpc
import structlog

from outrider.actors.engine.load import load_engine
from outrider.actors.engine.priority import lower_priority
from outrider.actors.engine.protocol import Engine
from outrider.actors.engine.tokenizer import load_tokenizer, tokenizer_fingerprint
from outrider.actors.grpc_server import advertised, bind, internal_server, serve_health
from outrider.actors.target.events import Output
from outrider.actors.target.servicer import TargetServicer
from outrider.actors.target.settings import TargetSettings
from outrider.actors.target.worker import TargetWorker
from outrider.actors.trace import TraceRecord, TraceRing
from outrider.v1 import target_pb2, target_pb2_grpc

TRACE_CAPACITY = 65536
"""Passes remembered for a timeline: minutes of the fastest decoding, some megabytes."""

log = structlog.get_logger(__name__)


class TargetServer:
    """Runs a target."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings
        self._trace = TraceRing(TRACE_CAPACITY)
        self._server: grpc.aio.Server | None = None
        self._thread: threading.Thread | None = None
        self._worker: TargetWorker | None = None

    async def start(self) -> str:
        """Loads the model, warms it up, and serves.

        Returns:
            The address that others reach it at.

        Raises:
            ValueError, OSError: The model cannot be loaded, or the address cannot be bound; the message says why.
        """
        settings = self._settings
        engine, fingerprint = await asyncio.to_thread(self._load)
        servicer = TargetServicer(settings, engine, fingerprint)
        loop = asyncio.get_running_loop()

        def emit(outputs: list[Output]) -> None:
            loop.call_soon_threadsafe(servicer.deliver, outputs)

        worker = TargetWorker(engine, settings, emit, trace=self._trace)
        servicer.attach_worker(worker)
        server = internal_server()
        target_pb2_grpc.add_TargetServiceServicer_to_server(servicer, server)
        await serve_health(
            server, target_pb2.DESCRIPTOR.services_by_name["TargetService"].full_name
        )
        port = bind(server, settings.listen)
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(worker, ready), name=f"{settings.name}-worker", daemon=True
        )
        self._worker, self._server = worker, server
        self._thread.start()
        await asyncio.to_thread(ready.wait, 120.0)
        await server.start()
        address = advertised(settings.listen, settings.advertise_host, port)
        log.info("target serves", target=settings.name, model=engine.spec.name, address=address)
        return address

    async def stop(self, grace_s: float = 2.0) -> None:
        """Ends the streams within the grace and the worker after its pass."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
        if self._worker is not None and self._thread is not None:
            self._worker.stop()
            await asyncio.to_thread(self._thread.join, 30.0)
            self._worker = self._thread = None

    def trace(self) -> list[TraceRecord]:
        """The last passes, for a timeline."""
        return self._trace.snapshot()

    def _load(self) -> tuple[Engine, str]:
        engine = load_engine(self._settings.engine)
        tokenizer = load_tokenizer(
            self._settings.engine.model, allow_remote_code=self._settings.engine.allow_remote_code
        )
        return engine, tokenizer_fingerprint(tokenizer) if tokenizer is not None else ""

    def _work(self, worker: TargetWorker, ready: threading.Event) -> None:
        lower_priority(self._settings.engine.niceness)
        try:
            worker.warm_up()
        finally:
            ready.set()
        worker.run()
