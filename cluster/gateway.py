"""`GenerationService`: requests are checked, admitted, run and streamed; everything else is answered from what is known.

A refusal from anywhere below becomes the call's status here, in one place. Nothing a client sends changes the state of
the service before it has passed every check.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import structlog
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message

import outrider
from outrider.actors.policy_wire import draft_length_to_proto, roots_to_proto, tree_mask_to_proto
from outrider.actors.speculation.policies import DraftLength, Roots, TreeMask
from outrider.actors.speculation.seeds import derive_seed, fresh_seed
from outrider.actors.wire import verifier_to_proto
from outrider.cluster import validation
from outrider.cluster.detokenise import Detokeniser
from outrider.cluster.links import Links, draft_lengths_of, verifiers_of
from outrider.cluster.sequence import Sequence, SequencePlan
from outrider.cluster.session import Session, State
from outrider.cluster.settings import CoordinatorSettings
from outrider.cluster.status_codes import Refusal, trailing_metadata
from outrider.cluster.tokenizer import TextCodec
from outrider.cluster.validation import Limits, Settled
from outrider.v1 import generation_pb2

LONG_TEXT = 16 * 1024
"""Characters from which tokenising happens in a thread: below it takes less than a millisecond or two, and a thread
would cost more than it saves."""

RETRY_AFTER_S = 1.0
"""Advice to a client that found the queue full: about the time of a short answer."""

STATUS_S = 0.5
"""Seconds that an actor has to answer before a status report calls it not ready."""

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Malformed:
    """Stands for a request that is not a message of the method's type."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class RunningRequest:
    """A request from its checks to its end: the messages that wait for the client, and its sequences."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.sequences: list[Sequence] = []
        self.admission = generation_pb2.Admission(request_id=request_id)
        self.is_aborted = False
        # Bounded by the output itself: at most one message for each token of each sequence.
        self._outbox: asyncio.Queue[generation_pb2.GenerateResponse | Refusal] = asyncio.Queue()
        self._is_admitted = False

    def put(self, item: generation_pb2.GenerateResponse | Refusal) -> None:
        """Queues a message for the client; the admission comes before all others."""
        if not isinstance(item, Refusal):
            self.admit()
        self._outbox.put_nowait(item)

    def admit(self) -> None:
        """Queues the admission, once."""
        if not self._is_admitted:
            self._is_admitted = True
            self._outbox.put_nowait(generation_pb2.GenerateResponse(admission=self.admission))

    def abort(self) -> None:
        """Ends every sequence with what it has."""
        self.is_aborted = True
        for sequence in self.sequences:
            sequence.abort()

    async def run(
        self, write: Callable[[generation_pb2.GenerateResponse], Awaitable[None]]
    ) -> None:
        """Runs the sequences and writes what they say, until each is complete.

        Raises:
            Refusal: The request cannot go on.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for sequence in self.sequences:
                    tasks.create_task(sequence.run(self.admit))
                await self._write_all(write)
        except* Refusal as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    async def _write_all(
        self, write: Callable[[generation_pb2.GenerateResponse], Awaitable[None]]
    ) -> None:
        remaining = len(self.sequences)
        while remaining:
            item = await self._outbox.get()
            if isinstance(item, Refusal):
                raise item
            await write(item)
            if item.HasField("completion"):
                remaining -= 1


class Gateway:
    """The public service."""

    def __init__(
        self, settings: CoordinatorSettings, codec: TextCodec | None, links: Links
    ) -> None:
        self.is_accepting = True
        self.num_finished = 0
        self.address = ""
        self._settings = settings
        self._codec = codec
        self._links = links
        self._requests: dict[str, RunningRequest] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = itertools.count(1)
        self._started_s = time.monotonic()

    @property
    def num_running(self) -> int:
        """Requests that are being checked, wait, or are decoded."""
        return len(self._requests)

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
        if not self.is_accepting:
            raise Refusal(
                grpc.StatusCode.UNAVAILABLE,
                "the service is draining and takes no new requests; use another or try again later",
                retry_after_s=RETRY_AFTER_S,
            )
        validation.check_request_id(request.request_id)
        limits = self._links.limits()
        validation.check_model(request.model, limits)
        with self._registered(request.request_id or uuid.uuid4().hex) as running:
            prompt = await self._prompt(request, limits)
            settled = validation.settle(
                request,
                prompt_length=len(prompt),
                limits=limits,
                fresh_seed=fresh_seed(),
            )
            self._prepare(running, tuple(prompt), settled, limits, arrived_s)
            await running.run(context.write)

    async def Abort(
        self, request: generation_pb2.AbortRequest, context: Context
    ) -> generation_pb2.AbortResponse:
        """Ends a running request."""
        validation.check_request_id(request.request_id)
        running = self._requests.get(request.request_id)
        if running is not None:
            running.abort()
        return generation_pb2.AbortResponse(was_running=running is not None)

    @contextmanager
    def _registered(self, request_id: str) -> Iterator[RunningRequest]:
        """Keeps a request's name while it runs."""
        if request_id in self._requests:
            raise Refusal(
                grpc.StatusCode.ALREADY_EXISTS,
                f"request_id {request_id!r} is running; wait for its end, abort it, or use another",
                field="request_id",
            )
        running = RunningRequest(request_id)
        self._requests[request_id] = running
        self._idle.clear()
        try:
            yield running
        finally:
            del self._requests[request_id]
            self.num_finished += 1
            if not self._requests:
                self._idle.set()

    def _prepare(
        self,
        running: RunningRequest,
        prompt: tuple[int, ...],
        settled: Settled,
        limits: Limits,
        arrived_s: float,
    ) -> None:
        """Makes the sequences and queues them."""
        number = next(self._numbers)
        sampling, codec = settled.sampling, self._codec
        group = (self._settings.incarnation & 0xFFFFFFFF) << 32 | number & 0xFFFFFFFF
        for index in range(settled.num_sequences):
            plan = SequencePlan(
                request=number,
                index=index,
                request_id=running.request_id,
                group=group if settled.num_sequences > 1 else 0,
                prompt=prompt,
                sampling=replace(sampling, seed=derive_seed(sampling.seed, index)),
                speculation=settled.speculation,
                drafters=settled.drafters,
                drafters_at_work=self._settings.drafters_per_session,
                arrived_s=arrived_s,
            )
            session = Session(
                detokeniser=Detokeniser(codec.decode, codec.special_ids) if codec else None,
                stops=settled.stops,
                stop_tokens=settled.stop_tokens,
                max_tokens=sampling.max_tokens,
                min_tokens=sampling.min_tokens,
                resume=settled.resume,
            )
            running.sequences.append(Sequence(plan, session, self._links.cluster, running.put))
        running.admission.model = limits.model
        running.admission.seed = sampling.seed
        running.admission.prompt_tokens = len(prompt)
        running.admission.drafters.extend(settled.drafters)
        if running.is_aborted:
            running.abort()
        elif not self._links.slots.enqueue(number, settled.num_sequences):
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the queue is full: {self._settings.max_waiting} requests wait for a slot; "
                f"try again in {RETRY_AFTER_S:g} s",
                retry_after_s=RETRY_AFTER_S,
            )

    async def _prompt(
        self, request: generation_pb2.GenerateRequest, limits: Limits
    ) -> list[int] | tuple[int, ...]:
        """The prompt's token ids, checked."""
        match request.WhichOneof("prompt"):
            case "text":
                field = "text"
                validation.check_text(request.text, limits)
                if not request.text:
                    raise validation.invalid(
                        "text", "is empty: the prompt needs at least one token"
                    )
                prompt = await self._encode(request.text, add_special_tokens=True)
            case "chat":
                field = "chat.messages"
                prompt = await self._encode_chat(request.chat, limits)
            case "tokens":
                field = "tokens.ids"
                prompt = list(request.tokens.ids)
            case _:
                raise validation.invalid("prompt", "is absent: set text, tokens or chat")
        validation.check_prompt(prompt, limits, field)
        return prompt

    async def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        codec = self._codec
        assert codec is not None, "text is refused where there is no tokenizer"
        if len(text) <= LONG_TEXT:
            return codec.encode(text, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(codec.encode, text, add_special_tokens=add_special_tokens)

    async def _encode_chat(self, chat: generation_pb2.ChatMessages, limits: Limits) -> list[int]:
        turns = validation.check_chat(chat, limits)
        assert self._codec is not None, "chat is refused where there is no tokenizer"
        try:
            text = self._codec.render_chat(turns)
        except ValueError as error:
            raise validation.invalid(
                "chat.messages", f"do not fit the model's chat template: {error}"
            ) from error
        # The template writes its own special tokens.
        return await self._encode(text, add_special_tokens=False)

    # -- the rest --------------------------------------------------------------------------------------------------

    async def ListModels(
        self, request: generation_pb2.ListModelsRequest, context: Context
    ) -> generation_pb2.ListModelsResponse:
        """Lists the model served and its drafters."""
        info, limits = self._links.info, self._links.limits()
        fits = {drafter.name for drafter in limits.drafters if not drafter.mismatch}
        links = self._links.drafters.values()
        offered = {one for link in links if link.name in fits for one in draft_lengths_of(link)}
        return generation_pb2.ListModelsResponse(
            models=[
                generation_pb2.TargetModel(
                    name=info.model,
                    vocab_size=info.vocab_size,
                    max_context=info.max_context,
                    eos_token_ids=info.eos_token_ids,
                    verifiers=info.verifiers,
                    drafters=[
                        generation_pb2.DrafterModel(
                            name=link.name,
                            method=link.info.method if link.info else "",
                            verifiers=map(verifier_to_proto, verifiers_of(link)),
                            ready=link.is_up and link.name in fits,
                            draft_lengths=map(draft_length_to_proto, draft_lengths_of(link)),
                        )
                        for link in links
                    ],
                    has_chat_template=limits.has_chat_template,
                    model_fingerprint=info.model_fingerprint,
                    tokenizer_fingerprint=info.tokenizer_fingerprint,
                    draft_lengths=[draft_length_to_proto(o) for o in DraftLength if o in offered],
                    roots=map(roots_to_proto, Roots),
                    tree_masks=map(tree_mask_to_proto, TreeMask),
                )
            ]
        )

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, context: Context
    ) -> generation_pb2.TokenizeResponse:
        """Turns text or a conversation into token ids."""
        limits = self._links.limits()
        validation.check_model(request.model, limits)
        match request.WhichOneof("input"):
            case "text":
                validation.check_text(request.text, replace(limits, max_token_chars=None))
                special = request.add_special_tokens or not request.HasField("add_special_tokens")
                ids = await self._encode(request.text, add_special_tokens=special)
            case "chat":
                ids = await self._encode_chat(request.chat, limits)
            case _:
                raise validation.invalid("input", "is absent: set text or chat")
        return generation_pb2.TokenizeResponse(ids=ids)

    async def Detokenize(
        self, request: generation_pb2.DetokenizeRequest, context: Context
    ) -> generation_pb2.DetokenizeResponse:
        """Turns token ids into text."""
        limits, codec = self._links.limits(), self._codec
        validation.check_model(request.model, limits)
        validation.check_token_ids(request.ids, limits, "ids")
        if codec is None:
            raise validation.invalid("ids", "cannot be shown: this service has no tokenizer")
        ids = list(request.ids)
        if request.skip_special_tokens or not request.HasField("skip_special_tokens"):
            ids = [token for token in ids if token not in codec.special_ids]
        if len(ids) <= LONG_TEXT:
            return generation_pb2.DetokenizeResponse(text=codec.decode(ids))
        return generation_pb2.DetokenizeResponse(text=await asyncio.to_thread(codec.decode, ids))

    async def GetStatus(
        self, request: generation_pb2.GetStatusRequest, context: Context
    ) -> generation_pb2.GetStatusResponse:
        """Reports who serves and how busy they are."""
        targets = list(self._links.targets.values())
        drafters = list(self._links.drafters.values())
        answers = await asyncio.gather(
            *(link.refresh(STATUS_S) for link in targets),
            *(link.refresh(STATUS_S) for link in drafters),
        )
        actors = [self._own_status()]
        for target, is_ready in zip(targets, answers, strict=False):
            status = _status("target", target.address, is_ready, target.info, target.num_sessions)
            actors.append(status)
        for drafter, is_ready in zip(drafters, answers[len(targets) :], strict=True):
            status = _status(
                "drafter", drafter.address, is_ready, drafter.info, drafter.num_sessions
            )
            status.name = drafter.name
            actors.append(status)
        states = [
            [sequence.session.state for sequence in request.sequences]
            for request in self._requests.values()
        ]
        running = sum(
            any(state in (State.RUNNING, State.CLOSING) for state in request) for request in states
        )
        return generation_pb2.GetStatusResponse(
            version=outrider.__version__,
            uptime_s=time.monotonic() - self._started_s,
            running=running,
            waiting=len(states) - running,
            finished=self.num_finished,
            actors=actors,
            accepting=self.is_accepting and self._links.is_ready,
        )

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


def _status(
    role: str, address: str, is_ready: bool, info: Any, num_sessions: int
) -> generation_pb2.ActorStatus:
    status = generation_pb2.ActorStatus(
        name=address, role=role, address=address, ready=is_ready, sessions=num_sessions
    )
    if info is not None:
        status.name, status.model, status.pid = info.name, info.model, info.pid
        status.incarnation, status.capacity, status.busy = (
            info.incarnation,
            info.num_slots,
            info.busy,
        )
    return status


def handlers(gateway: Gateway) -> grpc.GenericRpcHandler:
    """The service for a gRPC server.

    Made from the contract's descriptor rather than by the generated code, because a request that cannot be parsed must
    be answered with INVALID_ARGUMENT, and gRPC would answer UNKNOWN.
    """
    service = generation_pb2.DESCRIPTOR.services_by_name["GenerationService"]
    methods = {}
    for method in service.methods:
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        methods[method.name] = make(
            _guarded(getattr(gateway, method.name)),
            request_deserializer=_parser(message_factory.GetMessageClass(method.input_type)),
            response_serializer=message_factory.GetMessageClass(
                method.output_type
            ).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _parser(message_type: type[Message]) -> Callable[[bytes], Message | Malformed]:
    def parse(data: bytes) -> Message | Malformed:
        try:
            return message_type.FromString(data)
        except DecodeError as error:
            return Malformed(
                f"the request is not a valid {message_type.DESCRIPTOR.full_name}: {error}; "
                "text must be UTF-8, and the message one of this service's version of the contract"
            )

    return parse


def _guarded(
    method: Callable[[Any, Context], Awaitable[Any]],
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method whose refusals become the call's status."""

    async def answer(request: Any, context: Context) -> Any:
        if isinstance(request, Malformed):
            refusal = Refusal(grpc.StatusCode.INVALID_ARGUMENT, request.reason)
        else:
            try:
                return await method(request, context)
            except Refusal as error:
                refusal = error
            except Exception:
                log.exception("a request failed", method=getattr(method, "__name__", ""))
                refusal = Refusal(
                    grpc.StatusCode.INTERNAL, "the coordinator failed; its log says how"
                )
        return await context.abort(refusal.code, refusal.message, trailing_metadata(refusal))

    return answer
