"""`GenerationService`: requests are checked, admitted, run and streamed; everything else is answered from what is known.

`rpc` puts it behind a gRPC server. Nothing a client sends changes the state of the service before it has passed every check.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import structlog

import outrider
from outrider.actors.speculation.noise.seeds import derive_seed, fresh_seed
from outrider.actors.tracing.recorder import Recorder
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.gateway import other_coordinators, reports
from outrider.cluster.gateway.bearer import tenant_of
from outrider.cluster.metrics.books import RequestBooks
from outrider.cluster.metrics.request_recording import RequestRecording
from outrider.cluster.metrics.request_spans import open_spans
from outrider.cluster.requests.model_links import ModelLinks
from outrider.cluster.requests.running_request import RunningRequest
from outrider.cluster.requests.sequence import Sequence
from outrider.cluster.requests.sequence_plan import SequencePlan
from outrider.cluster.requests.served_models import ServedModels
from outrider.cluster.requests.session import Session
from outrider.cluster.requests.session_states import SessionState
from outrider.cluster.text.detokenise import Detokeniser
from outrider.cluster.text.text_tokenizer import TextCodec
from outrider.cluster.tracing.trace_call import Tracing
from outrider.cluster.validation.client_names import (
    check_fingerprint,
    check_model,
    check_request_id,
)
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.settle import Settled, settle
from outrider.cluster.validation.status_codes import Refusal
from outrider.cluster.validation.texts import Texts
from outrider.v1 import generation_pb2, trace_pb2

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 1.0
"""Advice to a client that found the queue full: about the time of a short answer."""

QUEUED = ("outrider-queued", "1")
"""Initial metadata of a request that waits for a slot: its client knows that it was taken in, before there is an admission."""

Context = grpc.aio.ServicerContext[Any, Any]


class Gateway:
    """The public service."""

    def __init__(
        self, settings: CoordinatorSettings, codec: TextCodec | None, models: ServedModels
    ) -> None:
        self.is_accepting = True
        self.num_finished = 0
        self.address = ""
        self._settings = settings
        self._codec = codec
        self._texts = Texts(codec)
        self._models = models
        self._requests: dict[str, RunningRequest] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = itertools.count(1)
        self._started_s = time.monotonic()
        self._recorder = Recorder()
        self.books = RequestBooks()
        self._spans = open_spans(settings.otlp_endpoint, coordinator=settings.name)
        self._tracing = Tracing(
            self._recorder,
            trace_pb2.TraceSource(
                name=settings.name, role="coordinator", incarnation=settings.incarnation
            ),
            models,
            self._requests,
        )

    @property
    def num_running(self) -> int:
        """Requests that are being checked, wait, or are decoded."""
        return len(self._requests)

    def load(self) -> tuple[int, int]:
        """Requests that are being decoded, and that wait for a slot."""
        running = sum(
            any(
                one.session.state in (SessionState.RUNNING, SessionState.CLOSING)
                for one in request.sequences
            )
            for request in self._requests.values()
        )
        return running, len(self._requests) - running

    async def close(self) -> None:
        """Sends the spans that wait, for a bounded time."""
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    def on_drafter_up(self, name: str) -> None:
        """Offers a drafter that has connected to whoever wants it."""
        for request in self._requests.values():
            for sequence in request.sequences:
                sequence.on_drafter_up(name)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Waits until no request runs; False if one still does after the time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    # -- Generate --------------------------------------------------------------------------------------------------

    async def Generate(self, request: generation_pb2.GenerateRequest, context: Context) -> None:
        """Generates text; see the contract."""
        arrived_s = time.monotonic()
        name = ""
        try:
            check_request_id(request.request_id)
            name = request.request_id or uuid.uuid4().hex
            links = self._links_for(request)
        except Refusal as refusal:
            # It never ran: a timeline of the request of this name, if there is one, is not about it.
            recording = RequestRecording(Recorder(), 0, name, self.books, self._spans)
            recording.came_from(context.invocation_metadata() or ())
            recording.ended(refusal.code.name)
            _tell_of_end(name, refusal.code.name, refusal)
            raise
        with self._registered(name) as running:
            limits = links.limits()
            running.recording.came_from(context.invocation_metadata() or ())
            prompt = await self._texts.prompt(request, limits)
            running.recording.tokenised(len(prompt))
            settled = settle(
                request,
                prompt_length=len(prompt),
                limits=limits,
                fresh_seed=fresh_seed(),
            )
            tenant = tenant_of(context.invocation_metadata() or (), context.auth_context())
            # An answer begins by itself; a text goes on, after a space if there is one.
            before = tuple(prompt) if request.HasField("text") else ()
            self._prepare(running, tuple(prompt), before, settled, links, arrived_s, tenant)
            waits = links.slots.waits
            is_queued = all(waits(one.plan.ticket) for one in running.sequences)
            # Its client goes on waiting should this coordinator end before there is a slot.
            tell = partial(context.send_initial_metadata, (QUEUED,)) if is_queued else None
            await running.run(context.write, before=tell)

    async def Abort(
        self, request: generation_pb2.AbortRequest, context: Context
    ) -> generation_pb2.AbortResponse:
        """Ends a running request, wherever it runs: one that was resumed may run at two coordinators for a while."""
        check_request_id(request.request_id)
        running = self._requests.get(request.request_id)
        if running is not None:
            running.abort()
        was_running = running is not None
        if not request.is_local:
            settings = self._settings
            was_running |= await other_coordinators.abort(
                self._models.roster, settings.name, settings.credentials, request.request_id
            )
        return generation_pb2.AbortResponse(was_running=was_running)

    def _limits(self, model: str) -> Limits:
        """What a request for this model is checked against; refuses another model."""
        limits = self._models.of(model).limits()
        check_model(model, limits, known=self._models.names)
        return limits

    def _links_for(self, request: generation_pb2.GenerateRequest) -> ModelLinks:
        """The links of the model that a new request is for.

        Raises:
            Refusal: Nothing is served now, or not this model, or a request of this name runs.
        """
        if not self.is_accepting:
            raise Refusal(
                grpc.StatusCode.UNAVAILABLE,
                "the service is draining and takes no new requests; use another or try again later",
                retry_after_s=RETRY_AFTER_S,
            )
        links = self._models.of(request.model, request.model_fingerprint)
        limits = links.limits()
        # Before the name: an exchanged model may have another one.
        check_fingerprint(request, limits)
        check_model(request.model, limits, known=self._models.names)
        if request.request_id in self._requests:
            raise Refusal(
                grpc.StatusCode.ALREADY_EXISTS,
                f"request_id {request.request_id!r} is running; wait for its end, abort it, or use another",
                field="request_id",
            )
        return links

    @contextmanager
    def _registered(self, request_id: str) -> Iterator[RunningRequest]:
        """Keeps a request's name while it runs."""
        recording = RequestRecording(
            self._recorder, next(self._numbers), request_id, self.books, self._spans
        )
        running = RunningRequest(request_id, recording)
        self._requests[request_id] = running
        self._idle.clear()
        outcome = "cancelled"
        refused: Refusal | None = None
        try:
            yield running
            outcome = "aborted" if running.is_aborted else "completed"
        except Refusal as refusal:
            outcome, refused = refusal.code.name, refusal
            raise
        except Exception:
            outcome = grpc.StatusCode.INTERNAL.name
            log.exception("a request failed", request_id=request_id)
            raise Refusal(
                grpc.StatusCode.INTERNAL, "the coordinator failed; its log says how"
            ) from None
        finally:
            recording.ended(outcome)
            _tell_of_end(request_id, outcome, refused)
            del self._requests[request_id]
            self._models.forget(recording.number)
            self.num_finished += 1
            if not self._requests:
                self._idle.set()

    def _prepare(
        self,
        running: RunningRequest,
        prompt: tuple[int, ...],
        before: tuple[int, ...],
        settled: Settled,
        links: ModelLinks,
        arrived_s: float,
        tenant: int,
    ) -> None:
        """Makes the sequences and queues them."""
        number, limits = running.recording.number, links.limits()
        sampling, codec = settled.sampling, self._codec
        group = (self._settings.incarnation & 0xFFFFFFFF) << 32 | number & 0xFFFFFFFF
        for index in range(settled.num_sequences):
            plan = SequencePlan(
                request=number,
                index=index,
                request_id=running.request_id,
                group=group if settled.num_sequences > 1 else 0,
                tenant=tenant,
                fingerprint=limits.fingerprint,
                prompt=prompt,
                sampling=replace(sampling, seed=derive_seed(sampling.seed, index)),
                speculation=settled.speculation,
                drafters=settled.drafters,
                arrived_s=arrived_s,
            )
            session = Session(
                detokeniser=Detokeniser(codec.decode, codec.special_ids, before=before)
                if codec
                else None,
                stops=settled.stops,
                stop_tokens=settled.stop_tokens,
                max_tokens=sampling.max_tokens,
                min_tokens=sampling.min_tokens,
                resume=settled.resume,
            )
            running.sequences.append(
                Sequence(plan, session, links.cluster, running.stream, running.recording)
            )
        running.stream.admission.model = limits.model
        running.stream.admission.model_fingerprint = limits.fingerprint
        running.stream.admission.seed = sampling.seed
        running.stream.admission.prompt_tokens = len(prompt)
        running.stream.admission.drafters.extend(settled.drafters)
        running.stream.admission.emulated = self._settings.emulated
        log.info("request accepted", request_id=running.request_id, prompt_tokens=len(prompt))
        if running.is_aborted:
            running.abort()
        elif not links.slots.enqueue(number, settled.num_sequences, prompt):
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the queue is full: {self._settings.max_waiting} requests wait for a slot; "
                f"try again in {RETRY_AFTER_S:g} s",
                retry_after_s=RETRY_AFTER_S,
            )

    # -- the rest --------------------------------------------------------------------------------------------------

    async def ListModels(
        self, request: generation_pb2.ListModelsRequest, context: Context
    ) -> generation_pb2.ListModelsResponse:
        """Lists the models served and their drafters."""
        return reports.models(self._models)

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, context: Context
    ) -> generation_pb2.TokenizeResponse:
        """Turns text or a conversation into token ids."""
        return await self._texts.tokenize(request, self._limits(request.model))

    async def Detokenize(
        self, request: generation_pb2.DetokenizeRequest, context: Context
    ) -> generation_pb2.DetokenizeResponse:
        """Turns token ids into text."""
        return await self._texts.detokenize(request, self._limits(request.model))

    async def GetStatus(
        self, request: generation_pb2.GetStatusRequest, context: Context
    ) -> generation_pb2.GetStatusResponse:
        """Reports who serves and how busy they are."""
        running, waiting = self.load()
        roster = self._models.roster
        status = generation_pb2.GetStatusResponse(
            version=outrider.__version__,
            uptime_s=time.monotonic() - self._started_s,
            running=running,
            waiting=waiting,
            finished=self.num_finished,
            actors=[self._own_status()],
            accepting=self.is_accepting and self._models.is_ready,
            refused_registrations=roster.refused,
            last_refusal=roster.last_refusal,
            replicas=reports.replicas(roster),
            emulated=self._settings.emulated,
        )
        if not request.is_local:
            told = await other_coordinators.statuses(
                roster, self._settings.name, self._settings.credentials
            )
            reports.add_peers(status, told)
            status.actors.extend(await reports.actors(self._models))
        return status

    async def Trace(self, request: trace_pb2.TraceRequest, context: Context) -> None:
        """Records what every actor does."""
        await self._tracing.run(request, context.write)

    def _own_status(self) -> generation_pb2.ActorStatus:
        return generation_pb2.ActorStatus(
            name=self._settings.name,
            role="coordinator",
            address=self.address,
            incarnation=self._settings.incarnation,
            ready=self.is_accepting,
            sessions=self.num_running,
            pid=os.getpid(),
        )


def _tell_of_end(request_id: str, outcome: str, refusal: Refusal | None) -> None:
    """Tells how a request ended, and why it was refused: of a field that is at fault only the name, as messages about fields quote
    what clients wrote there."""
    why: dict[str, str] = {}
    if refusal is not None:
        why = {"field": refusal.field} if refusal.field else {"reason": refusal.message}
    log.info("request ended", request_id=request_id, outcome=outcome, **why)
