"""A draft actor without Ray: model, worker thread and gRPC server, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2

from outrider.actors.draft.autoregressive import AutoregressiveDrafter
from outrider.actors.draft.by_verifier import DrafterByVerifier
from outrider.actors.draft.decision_file import find_decision
from outrider.actors.draft.drafter import Drafter
from outrider.actors.draft.events import Report
from outrider.actors.draft.lengths import Lengths
from outrider.actors.draft.messages import SERVED, SERVED_LENGTHS
from outrider.actors.draft.prompt_lookup import PromptLookupDrafter
from outrider.actors.draft.sampled import SERVED_SAMPLED, SampledDrafter
from outrider.actors.draft.service import DraftServicer
from outrider.actors.draft.settings import DraftSettings
from outrider.actors.draft.stats import DraftStats
from outrider.actors.draft.worker import DraftWorker
from outrider.actors.engine.load import load_engine
from outrider.actors.engine.priority import lower_priority
from outrider.actors.engine.source import resolve_model
from outrider.actors.engine.timed import TimedEngine
from outrider.actors.engine.tokenizer import load_tokenizer, tokenizer_fingerprint
from outrider.actors.grpc_server import advertised, bind, internal_server, serve_health
from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.policies import DraftLength
from outrider.actors.trace import Recorder
from outrider.actors.wire import PROTOCOL_VERSION, verifier_to_proto
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2

JOIN_TIMEOUT_S = 30.0
"""Bound on waiting for the worker's running pass at the end. More than the longest pass."""

SERVICE = draft_pb2.DESCRIPTOR.services_by_name["DraftService"].full_name

_log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A method that is ready to draft, and what identifies its model."""

    drafter: Drafter
    verifiers: tuple[Verifier, ...] = SERVED
    lengths: tuple[DraftLength, ...] = SERVED_LENGTHS
    model: str = ""
    model_fingerprint: str = ""
    tokenizer_fingerprint: str = ""
    vocab_size: int = 0
    engine: TimedEngine | None = None


class DraftServer:
    """Runs a drafter."""

    def __init__(self, settings: DraftSettings) -> None:
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._worker: DraftWorker | None = None
        self._servicer: DraftServicer | None = None
        self._server: grpc.aio.Server | None = None
        self._health: health.aio.HealthServicer | None = None
        self._failing: asyncio.Task[None] | None = None
        self._may_work = threading.Event()
        self._recorder = Recorder()

    async def start(self) -> str:
        """Loads the model, warms it up, and serves.

        Returns:
            The address that others reach it at.

        Raises:
            ValueError, OSError: The model cannot be loaded, or the address cannot be bound; the message says why.
        """
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        loaded: Future[tuple[_Loaded, DraftWorker]] = Future()
        # The arithmetic's own threads belong to the thread that first computes, so it is the one that loads.
        self._thread = threading.Thread(
            target=self._work, args=(loaded,), name=f"{settings.name}-worker", daemon=True
        )
        self._thread.start()
        try:
            method, worker = await asyncio.wrap_future(loaded)
            self._worker = worker
            self._servicer = DraftServicer(
                worker=worker,
                hello=self._hello(method),
                model=method.model,
                lengths=method.lengths,
                engine=method.engine,
                recorder=self._recorder,
            )
            self._server = internal_server()
            draft_pb2_grpc.add_DraftServiceServicer_to_server(self._servicer, self._server)
            self._health = await serve_health(self._server, SERVICE)
            port = bind(self._server, settings.listen)
            await self._server.start()
        except BaseException:
            await self.stop(0.0)
            raise
        self._may_work.set()
        address = advertised(settings.listen, settings.advertise_host, port)
        _log.info("drafter serves", drafter=settings.name, model=method.model, address=address)
        return address

    async def stop(self, grace_s: float = 2.0) -> None:
        """Ends the sessions, the streams within the grace, and the worker after its pass."""
        if self._failing is not None:
            self._failing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._failing
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
        if self._servicer is not None:
            await self._servicer.close(f"drafter {self._settings.name!r} is stopping")
        if self._server is not None:
            await self._server.stop(grace_s)
        if self._worker is not None:
            self._worker.stop()
        self._may_work.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, JOIN_TIMEOUT_S)
        self._health = self._servicer = self._server = self._worker = self._thread = None

    @property
    def stats(self) -> DraftStats:
        """What was drafted so far."""
        return self._worker.stats if self._worker is not None else DraftStats()

    def _hello(self, loaded: _Loaded) -> target_pb2.Hello:
        return target_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            name=self._settings.name,
            incarnation=self._settings.incarnation,
            model_fingerprint=loaded.model_fingerprint,
            tokenizer_fingerprint=loaded.tokenizer_fingerprint,
            vocab_size=loaded.vocab_size,
            verifiers=[verifier_to_proto(verifier) for verifier in loaded.verifiers],
            method=self._settings.method,
        )

    # -- on the worker's thread ------------------------------------------------------------------------------------

    def _work(self, loaded: Future[tuple[_Loaded, DraftWorker]]) -> None:
        settings = self._settings
        try:
            method = load_method(settings)
            worker = DraftWorker(
                method.drafter,
                max_ahead=settings.max_ahead,
                emit=self._emit,
                lockstep=settings.lockstep,
                recorder=self._recorder,
            )
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            loaded.set_exception(error)
            return
        loaded.set_result((method, worker))
        self._may_work.wait()
        try:
            worker.run()
        except Exception as error:  # noqa: BLE001 - the thread ends here; the server tells its peers
            _log.exception("draft worker failed", drafter=settings.name)
            self._call_loop(self._worker_failed, f"the draft worker failed: {error!r}")

    def _emit(self, report: Report) -> None:
        self._call_loop(self._deliver, report)

    def _call_loop(self, callback: Callable[[T], None], argument: T) -> None:
        assert self._loop is not None, "the thread is started by `start`"
        # The loop is closed only if it ended without `stop`; there is nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, argument)

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _deliver(self, report: Report) -> None:
        if self._servicer is not None:
            self._servicer.deliver(report)

    def _worker_failed(self, reason: str) -> None:
        self._failing = asyncio.ensure_future(self._fail(reason))

    async def _fail(self, reason: str) -> None:
        if self._health is not None:
            for service in ("", SERVICE):
                await self._health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
        if self._servicer is not None:
            await self._servicer.close(reason)


def load_method(settings: DraftSettings) -> _Loaded:
    """Loads what the settings name, on the thread that will draft.

    Raises:
        ValueError, OSError: The model cannot be loaded; the message says why.
    """
    if settings.method == "prompt_lookup" or settings.engine is None:
        lookup = PromptLookupDrafter(
            num_slots=settings.num_slots,
            max_ahead=settings.max_ahead,
            lockstep=settings.lockstep,
        )
        return _Loaded(drafter=lookup)
    lower_priority(settings.engine.niceness)
    engine = TimedEngine(load_engine(settings.engine))
    tokenizer = load_tokenizer(
        settings.engine.model, allow_remote_code=settings.engine.allow_remote_code
    )
    lengths = Lengths(find_decision(_folder_of(settings.engine.model), engine.spec.fingerprint))
    drafter = AutoregressiveDrafter(
        engine,
        width=settings.width,
        expand=settings.expand,
        max_ahead=settings.max_ahead,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
        lengths=lengths,
    )
    drafter.warm_up()
    sampled = SampledDrafter(
        engine,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
        lengths=lengths,
    )
    return _Loaded(
        drafter=DrafterByVerifier(coupled=drafter, sampled=sampled),
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
