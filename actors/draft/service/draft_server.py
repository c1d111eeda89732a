"""A draft actor without Ray: model, worker thread and gRPC server, started and stopped together."""

from __future__ import annotations

import grpc
import structlog

from outrider.actors.draft.choice.drafter_registry import DRAFTERS, served_verifiers
from outrider.actors.draft.draft_core import core_of
from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.service.draft_metrics import DraftCollector
from outrider.actors.draft.service.draft_service import DraftServicer
from outrider.actors.draft.state.draft_events import Report
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed
from outrider.actors.engine.turn_taking import compute_device
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.verifier_wire import offer_of
from outrider.actors.metrics.metrics_service import serve_metrics
from outrider.actors.process.worker_server import WorkerServer
from outrider.actors.speculation.plugins import fault
from outrider.actors.tracing.recorder import Recorder
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2

SERVICE = draft_pb2.DESCRIPTOR.services_by_name["DraftService"].full_name

_log = structlog.get_logger(__name__)


class DraftServer(WorkerServer[DraftWorker, Report]):
    """Runs a drafter."""

    def __init__(self, settings: DraftSettings) -> None:
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
        self._servicer: DraftServicer | None = None
        self._method: LoadedDrafter | None = None

    async def start(self) -> str:
        """Loads the model, warms it up, and serves.

        Returns:
            The address that others reach it at.

        Raises:
            ValueError, OSError: The model cannot be loaded, or the address cannot be bound; the message says why.
        """
        address = await super().start()
        model = self._method.model if self._method is not None else ""
        if self._method is not None and self._method.engine is not None:
            self.description = self._method.engine.description
        _log.info("drafter serves", drafter=self._settings.name, model=model, address=address)
        return address

    @property
    def stats(self) -> DraftStats:
        """What was drafted so far."""
        return self.worker.stats if self.worker is not None else DraftStats()

    def _load(self) -> DraftWorker:
        settings = self._settings
        self._method = load_method(settings)
        method = self._method
        core = core_of(settings, method.sessions, method.drafter, self.recorder)
        return DraftWorker(core, emit=self._emit)

    def _serve(self, worker: DraftWorker, server: grpc.aio.Server) -> None:
        method = self._method
        assert method is not None, "the worker is made from it"
        self._servicer = DraftServicer(
            worker=worker,
            hello=self._hello(method),
            model=method.model,
            lengths=method.lengths,
            engine=method.engine,
            reads_siblings=TargetNeed.SIBLINGS in method_of(self._settings).needs,
            recorder=self.recorder,
            credentials=self._settings.credentials,
            feedback=method.feedback,
        )
        draft_pb2_grpc.add_DraftServiceServicer_to_server(self._servicer, server)
        serve_metrics(server, DraftCollector(worker, method.engine))

    def _deliver(self, message: Report) -> None:
        if self._servicer is not None:
            self._servicer.deliver(message)

    async def _before_end(self) -> None:
        servicer, self._servicer = self._servicer, None
        if servicer is not None:
            await servicer.close(f"drafter {self._settings.name!r} is stopping")

    async def _end_streams(self, reason: str) -> None:
        if self._servicer is not None:
            await self._servicer.close(reason)

    def _hello(self, loaded: LoadedDrafter) -> target_pb2.Hello:
        spec = None if loaded.engine is None else loaded.engine.spec
        return target_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            name=self._settings.name,
            incarnation=self._settings.incarnation,
            model_fingerprint=loaded.model_fingerprint,
            tokenizer_fingerprint=loaded.tokenizer_fingerprint,
            vocab_size=loaded.vocab_size,
            **offer_of(served_verifiers(method_of(self._settings))),
            method=self._settings.method,
            device=""
            if spec is None
            else compute_device(spec.device, is_emulated=bool(spec.emulated)).name,
        )


def load_method(settings: DraftSettings) -> LoadedDrafter:
    """Loads what the settings name, on the thread that will draft.

    Raises:
        ValueError, OSError: There is no such method, or it cannot be loaded; the message says why.
    """
    method = method_of(settings)
    method.settled(settings.options)
    if method.needs_model and settings.engine is None:
        raise ValueError(f"engine is absent; the method {method.name} needs a draft model")
    try:
        loaded = method.build(settings)
    except (ValueError, OSError):
        raise
    except Exception as error:
        # A defect, of code that may be others'.
        raise ValueError(f"method {method.name} cannot be built: {fault(error)}") from error
    if not isinstance(loaded, LoadedDrafter):
        problem = f"method {method.name} built {loaded!r}, which is no LoadedDrafter"
        raise ValueError(problem)  # noqa: TRY004 - as for all else that cannot be loaded
    method.check_feedback(loaded)
    method.check_lengths(loaded, settings.engine.model if settings.engine is not None else "")
    return loaded


def method_of(settings: DraftSettings) -> DrafterSpec:
    """The method that settings name.

    Raises:
        ValueError: There is none.
    """
    if settings.method not in DRAFTERS:
        raise ValueError(
            f"method is {settings.method!r}; it must be one of {', '.join(DRAFTERS)}. A method of another package "
            "has to be installed where the drafter runs, too"
        )
    return DRAFTERS[settings.method]
