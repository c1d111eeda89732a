"""One sequence as a state machine: events in, commands out. Pure: no clock, no waiting, no sockets.

The coordinator feeds it what the target said and carries out what it answers. `session_states.TRANSITIONS` says which
events a state takes, and where they lead.

Invariants: the tokens delivered are a prefix of the target's output, each once, whatever is lost and re-opened; the
text delivered is their text, cut before the first stop string. Events of an opening that is over change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

import grpc

from outrider.cluster.requests.session_commands import (
    AttachDrafter,
    Close,
    Command,
    Complete,
    Deliver,
    Fail,
    Open,
)
from outrider.cluster.requests.session_states import TRANSITIONS, SessionEvent, SessionState
from outrider.cluster.requests.statistics import PartCounts
from outrider.cluster.text.detokenise import Detokeniser
from outrider.cluster.text.output_text import OutputText
from outrider.cluster.validation.status_codes import RETRYABLE, Refusal, code_of
from outrider.v1 import generation_pb2

MAX_FRUITLESS_OPENS = 5
"""Openings in a row that may end without a single token before the sequence fails. One covers a restart, a few a
target that is still filling up; more only repeats what brings the target down."""


P = ParamSpec("P")


def _on(
    event: SessionEvent,
) -> Callable[
    [Callable[Concatenate[Session, P], list[Command]]],
    Callable[Concatenate[Session, P], list[Command]],
]:
    """A method that takes an event as `TRANSITIONS` says."""

    def taking(
        method: Callable[Concatenate[Session, P], list[Command]],
    ) -> Callable[Concatenate[Session, P], list[Command]]:
        @wraps(method)
        def take(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> list[Command]:
            leads_to = TRANSITIONS.get((self.state, event))
            if leads_to is None:
                return []
            commands = method(self, *args, **kwargs)
            assert self.state in leads_to, f"{event} led to {self.state}"
            return commands

        return take

    return taking


class Session:
    """One sequence of a request."""

    def __init__(
        self,
        *,
        detokeniser: Detokeniser | None,
        stops: tuple[str, ...] = (),
        stop_tokens: frozenset[int] = frozenset(),
        max_tokens: int,
        min_tokens: int = 0,
        resume: Sequence[int] = (),
    ) -> None:
        """Takes what decides text and end.

        Args:
            detokeniser: Turns tokens into text; None for token ids only.
            stops: Stop strings.
            stop_tokens: Token ids that end the output, end-of-text included.
            max_tokens: Greatest number of output tokens.
            min_tokens: Stop strings completed before this many output tokens do not end the output.
            resume: Output tokens that the client already has.
        """
        self.state = SessionState.ADMITTED
        self.output: list[int] = list(resume)
        """The committed output tokens, resumed ones included."""
        self.parts: list[PartCounts | generation_pb2.SpeculationStats] = []
        """Statistics of each opening: the target's, or what was seen if the target could not tell."""
        self.timings: list[generation_pb2.Timing] = []
        self.cached_tokens = 0
        self._text = OutputText(
            detokeniser=detokeniser, stops=stops, stop_tokens=stop_tokens, min_tokens=min_tokens
        )
        self._stop_tokens = stop_tokens
        self._max_tokens = max_tokens
        self._epoch = 0
        self._fruitless_opens = 0
        self._end = Complete(reason=generation_pb2.FINISH_REASON_UNSPECIFIED)

    @_on(SessionEvent.START)
    def start(self) -> list[Command]:
        """Begins. Resumed tokens are replayed: what they end is not opened again."""
        read = self._text.read(self.output, 0)
        del self.output[read.num_read :]
        if read.stop is not None:
            self._end = Complete(reason=generation_pb2.FINISH_REASON_STOP_STRING, stop=read.stop)
            return self._complete()
        if (whole := self._end_if_whole()) is not None:
            return whole
        self.state = SessionState.OPENING
        return [Open()]

    @_on(SessionEvent.OPENED)
    def opened(self) -> list[Command]:
        """The target has opened the session."""
        self.state = SessionState.RUNNING
        self._epoch = 0
        self.parts.append(PartCounts())
        return [AttachDrafter()]

    @_on(SessionEvent.COMMITTED)
    def committed(
        self,
        epoch: int,
        ids: list[int],
        origins: list[int],
        told: list[generation_pb2.Token] | None = None,
    ) -> list[Command]:
        """The target has committed tokens.

        Args:
            epoch: Rounds that the session has seen.
            ids: Token ids. The lists are the session's from now on.
            origins: The drafter that proposed each, -1: the target itself.
            told: The tokens with their log-probabilities, if the client wants those.
        """
        if epoch != self._epoch + 1:
            return [
                Close(),
                *self._reopen(
                    f"the target told round {epoch} after round {self._epoch}; the commits between are lost"
                ),
            ]
        self._epoch = epoch
        self._fruitless_opens = 0
        part = self.parts[-1]
        assert isinstance(part, PartCounts)
        part.count(origins)
        read = self._text.read(ids, len(self.output))
        if read.stop is None:
            self.output += ids
            return [Deliver(read.text, ids, origins, told or [])]
        del ids[read.num_read :], origins[read.num_read :]
        self.output += ids
        delivered = Deliver(read.text, ids, origins, (told or [])[: read.num_read])
        self.state = SessionState.CLOSING
        self._end = Complete(reason=generation_pb2.FINISH_REASON_STOP_STRING, stop=read.stop)
        return [delivered, Close()]

    @_on(SessionEvent.FINISHED)
    def finished(
        self,
        reason: generation_pb2.FinishReason.ValueType,
        stats: generation_pb2.SpeculationStats,
        timing: generation_pb2.Timing,
        cached_tokens: int,
    ) -> list[Command]:
        """The target has ended the session, or tells what became of one that was closed."""
        self.parts[-1] = stats
        self.timings.append(timing)
        self.cached_tokens = max(self.cached_tokens, cached_tokens)
        if self.state is SessionState.CLOSING:
            return self._complete()
        return self._end_by_target(reason)

    @_on(SessionEvent.CLOSING_EXPIRED)
    def closing_expired(self) -> list[Command]:
        """The target did not tell in time what became of a closed session."""
        return self._complete()

    @_on(SessionEvent.FAILED)
    def failed(self, code: int, message: str) -> list[Command]:
        """The target cannot open the session or go on with it."""
        if self.state is SessionState.CLOSING:
            return self._complete()
        status = code_of(code)
        if status is grpc.StatusCode.RESOURCE_EXHAUSTED and self.state is SessionState.OPENING:
            # Others were faster. That says nothing against the session, so it may happen any number of times.
            return [Open(is_full=True)]
        if status in RETRYABLE:
            return self._reopen(f"the target answered {status.name}: {message}", status)
        self.state = SessionState.ENDED
        return [Fail(refusal=Refusal(status, message))]

    @_on(SessionEvent.LOST)
    def lost(self, reason: str) -> list[Command]:
        """The stream to the target broke."""
        if self.state is SessionState.CLOSING:
            return self._complete()
        return self._reopen(reason)

    @_on(SessionEvent.ABORT)
    def abort(self) -> list[Command]:
        """The client wants no more."""
        if self.state is SessionState.CLOSING:
            return self._complete()
        was_open = self.state is not SessionState.ADMITTED
        self._end = Complete(reason=generation_pb2.FINISH_REASON_ABORTED)
        ending = self._finish_text(may_stop=False)
        return [Close(), *ending] if was_open else ending

    def _end_if_whole(self) -> list[Command] | None:
        """Ends a sequence whose output is complete although no target said so: it broke in between, or a resumed
        stream had only its last message missing."""
        if self.output and self.output[-1] in self._stop_tokens:
            return self._end_by_target(generation_pb2.FINISH_REASON_STOP_TOKEN)
        if len(self.output) >= self._max_tokens:
            return self._end_by_target(generation_pb2.FINISH_REASON_LENGTH)
        return None

    def _end_by_target(self, reason: generation_pb2.FinishReason.ValueType) -> list[Command]:
        stop = ""
        if reason == generation_pb2.FINISH_REASON_STOP_TOKEN:
            self._text.drop_stop_token()
            stop = str(self.output[-1]) if self.output else ""
        self._end = Complete(reason=reason, stop=stop)
        return self._finish_text()

    def _reopen(
        self, reason: str, status: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    ) -> list[Command]:
        if (whole := self._end_if_whole()) is not None:
            return whole
        self._fruitless_opens += 1
        if self._fruitless_opens > MAX_FRUITLESS_OPENS:
            self.state = SessionState.ENDED
            return [
                Fail(
                    refusal=Refusal(
                        status,
                        f"gave up after {self._fruitless_opens} openings without a token; the last one: {reason}",
                        retry_after_s=1.0,
                    )
                )
            ]
        self.state = SessionState.OPENING
        return [Open(reason=reason)]

    def _finish_text(self, *, may_stop: bool = True) -> list[Command]:
        """Delivers the text still held back, which may itself complete a stop string, and ends."""
        passed = self._text.finish(len(self.output), may_stop=may_stop)
        if passed.stop is not None:
            self._end = Complete(reason=generation_pb2.FINISH_REASON_STOP_STRING, stop=passed.stop)
        ending = self._complete()
        return [Deliver(passed.text, [], []), *ending] if passed.text else ending

    def _complete(self) -> list[Command]:
        self.state = SessionState.ENDED
        return [self._end]
