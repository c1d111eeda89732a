"""A draft actor without Ray: model, worker thread and gRPC server, started and stopped together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from outrider.actors.draft.assembly import core_of, model_method
from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.frozen.frozen_drafter import SERVED_SAMPLED
from outrider.actors.draft.methods.prompt_lookup import PromptLookupDrafter
from outrider.actors.draft.service.draft_messages import SERVED, SERVED_LENGTHS
from outrider.actors.draft.service.draft_metrics import DraftCollector
from outrider.actors.draft.service.draft_service import DraftServicer
from outrider.actors.draft.state.draft_events import Report
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import Drafter
from outrider.actors.draft.stopping.lengths import Lengths
from outrider.actors.draft.stopping.stop_model_file import find_decision
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.checkpoint.tokenizers import load_tokenizer, tokenizer_fingerprint
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.verifier_wire import offer_of
from outrider.actors.metrics.metrics_service import serve_metrics
from outrider.actors.process.worker_server import WorkerServer
from outrider.actors.speculation.policies import LengthChoice
from outrider.actors.tracing.recorder import Recorder
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2

SERVICE = draft_pb2.DESCRIPTOR.services_by_name["DraftService"].full_name

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A method that is ready to draft, and what identifies its model."""

    sessions: DraftSessions
    drafter: Drafter
    verifiers: tuple[str, ...] = SERVED
    lengths: tuple[LengthChoice, ...] = SERVED_LENGTHS
    model: str = ""
    model_fingerprint: str = ""
    tokenizer_fingerprint: str = ""
    vocab_size: int = 0
    engine: TimedEngine | None = None


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
        self._recorder = Recorder()
        self._servicer: DraftServicer | None = None
        self._method: _Loaded | None = None

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
        return self._worker.stats if self._worker is not None else DraftStats()

    def _load(self) -> DraftWorker:
        settings = self._settings
        self._method = load_method(settings)
        method = self._method
        core = core_of(settings, method.sessions, method.drafter, self._recorder)
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
            recorder=self._recorder,
            credentials=self._settings.credentials,
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

    def _hello(self, loaded: _Loaded) -> target_pb2.Hello:
        return target_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            name=self._settings.name,
            incarnation=self._settings.incarnation,
            model_fingerprint=loaded.model_fingerprint,
            tokenizer_fingerprint=loaded.tokenizer_fingerprint,
            vocab_size=loaded.vocab_size,
            **offer_of(loaded.verifiers),
            method=self._settings.method,
        )


def load_method(settings: DraftSettings) -> _Loaded:
    """Loads what the settings name, on the thread that will draft.

    Raises:
        ValueError, OSError: The model cannot be loaded; the message says why.
    """
    if settings.method == "prompt_lookup" or settings.engine is None:
        sessions = DraftSessions(settings.num_slots, settings.max_ahead)
        lookup = PromptLookupDrafter(
            sessions, max_ahead=settings.max_ahead, lockstep=settings.lockstep
        )
        return _Loaded(sessions=sessions, drafter=lookup)
    engine = TimedEngine(load_engine(settings.engine))
    tokenizer = load_tokenizer(
        settings.engine.model, allow_remote_code=settings.engine.allow_remote_code
    )
    lengths = Lengths(find_decision(_folder_of(settings.engine.model), engine.spec.fingerprint))
    sessions, drafter = model_method(engine, settings, lengths=lengths)
    return _Loaded(
        sessions=sessions,
        drafter=drafter,
        verifiers=(*SERVED, *SERVED_SAMPLED),
        lengths=lengths.offered,
        model=engine.spec.name,
        model_fingerprint=engine.spec.fingerprint,
        tokenizer_fingerprint="" if tokenizer is None else tokenizer_fingerprint(tokenizer),
        vocab_size=engine.spec.vocab_size,
        engine=engine,
    )


def _folder_of(model: str) -> Path | None:
    """Folder of a draft model that lies on this machine."""
    source = resolve_model(model)
    return Path(source.location) if source.is_local and not source.is_tabular else None
