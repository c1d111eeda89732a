"""A target actor without Ray: model, worker thread and gRPC server, started and stopped together."""

from __future__ import annotations

import grpc
import structlog

from outrider.actors.engine.checkpoint.tokenizer_reading import TokenizerReading
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.metrics.metrics_service import serve_metrics
from outrider.actors.process.worker_server import WorkerServer
from outrider.actors.target.service.handshake import text_fingerprint
from outrider.actors.target.service.target_metrics import TargetCollector
from outrider.actors.target.service.target_service import TargetServicer
from outrider.actors.target.state.target_events import Output
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker
from outrider.actors.tracing.recorder import Recorder
from outrider.v1 import target_pb2, target_pb2_grpc

SERVICE = target_pb2.DESCRIPTOR.services_by_name["TargetService"].full_name

_log = structlog.get_logger(__name__)


class TargetServer(WorkerServer[TargetWorker, list[Output]]):
    """Runs a target."""

    def __init__(self, settings: TargetSettings) -> None:
        """Starts nothing."""
        super().__init__(
            name=settings.name,
            service=SERVICE,
            listen=settings.listen,
            advertise_host=settings.advertise_host,
            credentials=settings.credentials,
        )
        self._settings = settings
        self.recorder = Recorder()
        """Takes what traces ask for."""
        self._servicer: TargetServicer | None = None
        self._engine: TimedEngine | None = None
        self._tokenizer_fingerprint = ""
        self._fingerprint = ""

    async def start(self) -> str:
        """Loads the model, warms it up, and serves.

        Returns:
            The address that others reach it at.

        Raises:
            ValueError, OSError: The model cannot be loaded, or the address cannot be bound; the message says why.
        """
        address = await super().start()
        settings = self._settings
        assert self._engine is not None, "loaded by now"
        spec, self.description = self._engine.spec, self._engine.description
        _log.info(
            "target serves",
            target=settings.name,
            model=settings.engine.model,
            address=address,
            dtype=str(spec.dtype),
            num_slots=self._engine.num_slots,
            max_context=spec.max_context,
        )
        return address

    def _load(self) -> TargetWorker:
        wanted = self._settings.engine
        reading = TokenizerReading(wanted.model, allow_remote_code=wanted.allow_remote_code)
        with reading:
            self._engine = TimedEngine(load_engine(wanted))
            tokenizer = reading.result()
        spec = self._engine.spec
        self._tokenizer_fingerprint = tokenizer.fingerprint
        self._fingerprint = text_fingerprint(
            spec.fingerprint,
            spec.dtype,
            tokenizer.fingerprint,
            tokenizer.chat_template,
            spec.eos_token_ids,
        )
        worker = TargetWorker(self._engine, self._settings, self._emit, recorder=self.recorder)
        worker.warm_up()
        return worker

    def _serve(self, worker: TargetWorker, server: grpc.aio.Server) -> None:
        assert self._engine is not None, "the worker is made from it"
        self._servicer = TargetServicer(
            self._settings,
            self._engine,
            self._fingerprint,
            self._tokenizer_fingerprint,
            worker,
            self.recorder,
        )
        target_pb2_grpc.add_TargetServiceServicer_to_server(self._servicer, server)
        serve_metrics(server, TargetCollector(worker.state, self._engine))

    def _deliver(self, message: list[Output]) -> None:
        if self._servicer is not None:
            self._servicer.deliver(message)

    async def _end_streams(self, reason: str) -> None:
        if self._servicer is not None:
            self._servicer.end_streams(reason)
