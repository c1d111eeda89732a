"""The streams on which drafters send candidates and get verdicts. On the event loop."""

from __future__ import annotations

from typing import Any

import grpc
import structlog

from outrider.actors.engine.protocol import ModelSpec
from outrider.actors.engine.turn_taking import ComputeDevice
from outrider.actors.exchange.vocabulary import Vocabulary
from outrider.actors.process.seldom_log import SeldomLog
from outrider.actors.rpc.hello import PeerIncarnations
from outrider.actors.rpc.pump import pump
from outrider.actors.target.opening import OFFERED
from outrider.actors.target.service.feedback_streams import FeedbackStreams
from outrider.actors.target.service.handshake import drafter_misfit
from outrider.actors.target.service.peer_outbox import PeerOutbox
from outrider.actors.target.service.target_messages import (
    candidates_from_proto,
    frozen_from_proto,
)
from outrider.actors.target.state.target_events import DrafterJoined, DrafterLeft, ResyncRequest
from outrider.actors.target.target_worker import TargetWorker
from outrider.actors.tracing.recorder import Recorder
from outrider.actors.tracing.trace_messages import StreamLog
from outrider.v1 import target_pb2

MOST_WAITING = 128
"""Events that wait for the worker while drafters are read; with more, they have to wait with what they send. What comes while passes run is
taken in at once, so that so many are waiting only where drafters send faster than the target can take."""

MOST_UNREAD = 256
"""Answers that wait for a drafter while it is read. Each may be a whole text, asked for by a few bytes, so that who asks without reading the
answers would fill the memory."""

_log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class DrafterStreams:
    """Who proposes candidates. Of one drafter the latest start counts."""

    def __init__(
        self,
        target: str,
        spec: ModelSpec,
        tokenizer: str,
        device: ComputeDevice,
        worker: TargetWorker,
        feedback: FeedbackStreams,
        recorder: Recorder,
    ) -> None:
        """
        Args:
            target: The target's name.
            spec: Of its model.
            tokenizer: Fingerprint of its tokenizer.
            device: What it computes on.
            worker: Takes events.
            feedback: What drafters learn beyond tokens; ends with the stream of candidates.
            recorder: Takes records for a timeline.
        """
        self._target = target
        self._spec = spec
        self._vocabulary = Vocabulary(size=spec.vocab_size, tokenizer=tokenizer)
        self._device = device
        self._worker = worker
        self._feedback = feedback
        self._recorder = recorder
        self._incarnations = PeerIncarnations()
        self._outboxes: dict[str, PeerOutbox[target_pb2.VerdictMessage]] = {}
        """By name of the drafter."""
        self._logs: dict[str, StreamLog] = {}
        self._refusals = SeldomLog(_log)

    async def serve(
        self, context: Context, hello: target_pb2.Hello, own_hello: target_pb2.Hello
    ) -> None:
        """Serves one of them until its stream ends; one that does not fit is refused with the reason.

        Args:
            context: Of the call.
            hello: Introduces the drafter.
            own_hello: Introduces the target.
        """
        misfit = drafter_misfit(
            hello, vocabulary=self._vocabulary, target_name=self._spec.name, offered=OFFERED
        ) or self._incarnations.refusal(hello.name, hello.incarnation)
        if misfit is not None:
            _log.warning("drafter refused", target=self._target, reason=misfit)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, misfit)
        outbox: PeerOutbox[target_pb2.VerdictMessage] = PeerOutbox()
        former = self._outboxes.get(hello.name)
        self._outboxes[hello.name] = outbox
        log = StreamLog(self._recorder, hello)
        self._logs[hello.name] = log
        self._feedback.joined(hello)
        if former is not None:
            # A later start of the same drafter has come, or it lost that stream: it has none of the sessions.
            former.end()
            self._worker.post(DrafterLeft(drafter=hello.name))
        try:
            await context.write(target_pb2.VerdictMessage(hello=own_hello))
            takes_turns = self._device.holds_up(hello.device)
            self._worker.post(DrafterJoined(drafter=hello.name, takes_turns=takes_turns))
            _log.info("drafter connected", target=self._target, drafter=hello.name)
            await pump(
                context,
                outbox,
                lambda m: self._take(m, hello.name, log),
                has_room=lambda: (
                    self._worker.num_waiting < MOST_WAITING and outbox.num_waiting < MOST_UNREAD
                ),
            )
        finally:
            outbox.tell_overrun(self._target, drafter=hello.name)
            if self._outboxes.get(hello.name) is outbox:
                del self._outboxes[hello.name], self._logs[hello.name]
                self._feedback.left(hello.name)
                self._refusals.forget(hello.name)
                self._worker.post(DrafterLeft(drafter=hello.name))
                _log.info("drafter gone", target=self._target, drafter=hello.name)

    def tell(self, drafter: str, message: target_pb2.VerdictMessage) -> None:
        """Queues a message for a drafter, if it is there."""
        outbox = self._outboxes.get(drafter)
        if outbox is not None:
            self._logs[drafter].sent(message)
            outbox.put(message)

    def end(self) -> None:
        """Ends every stream."""
        for outbox in self._outboxes.values():
            outbox.end()

    def _take(self, message: target_pb2.DrafterMessage, drafter: str, log: StreamLog) -> None:
        traced = log.received(message)
        vocab_size = self._spec.vocab_size
        match message.WhichOneof("message"):
            case "candidates":
                try:
                    frame = candidates_from_proto(message.candidates, drafter, vocab_size, traced)
                    if frame is not None:
                        self._worker.post(frame)
                except ValueError as error:
                    self._refusals.warning("candidates dropped", drafter=drafter, reason=str(error))
                try:
                    for frozen in frozen_from_proto(
                        message.candidates, drafter, vocab_size, traced
                    ):
                        self._worker.post(frozen)
                except ValueError as error:
                    self._refusals.warning(
                        "frozen trees dropped", drafter=drafter, reason=str(error)
                    )
            case "resync":
                self._worker.post(
                    ResyncRequest(
                        drafter=drafter,
                        handle=message.resync.handle,
                        length=message.resync.length,
                    )
                )
