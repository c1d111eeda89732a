"""The state of one generation stream over all its connections: what has arrived, and how to go on. Pure.

A stream of one sequence that breaks is opened again, at the same or the next address, with the seed of its admission
and the tokens already received; since the service's output is fixed by prompt, seed and position, it goes on as if
nothing had happened. The fingerprint of the model goes along, and a service of another model refuses; that address is not tried again,
the others are. A request that is refused for load before its admission is sent again as the service advises; one that had a place in
the queue of a service that broke is sent again for as long as a stream would be resumed.

Invariants: each event is handed out once, in order; tokens are never dropped or repeated; the
admission is handed out once; no text is of two models. Several sequences (n > 1) can be reopened only while none of their tokens has arrived.

The blocking and the asyncio client both drive this; the clock and the jitter are arguments.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from outrider.client.connection.errors import (
    AlreadyRunning,
    Cancelled,
    ModelExchanged,
    OutriderError,
    Overloaded,
    ServiceError,
    Unavailable,
)
from outrider.client.connection.retry import RetryPolicy
from outrider.client.messages.request_wire import resumed
from outrider.client.messages.result_wire import event_from_proto
from outrider.client.messages.results import Admission, Completion, Event, TextChunk
from outrider.v1.generation_pb2 import GenerateRequest, GenerateResponse


def new_request_id() -> str:
    """A name for a request that no other has."""
    return f"r-{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Open the stream again."""

    delay_s: float
    """After this wait."""

    abort_first: bool
    """End what may still run under this request's id, first."""


class StreamProgress:
    """What one stream has brought so far."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        policy: RetryPolicy,
        addresses: tuple[str, ...],
        owns_id: bool,
    ) -> None:
        """Args:
        request: As first sent.
        policy: Bounds of trying again.
        addresses: What the tries go round.
        owns_id: The request id was made by this client, so that nobody else can be using it.
        """
        self._request = request
        self._policy = policy
        self._addresses = addresses
        self._owns_id = owns_id
        self._num_sequences = max(1, request.sampling.n)
        self._drafters: tuple[str, ...] = ()
        self._token_ids: list[int] = []
        self._completed: set[int] = set()
        self._failures = 0
        self._breaks = 0
        self._was_answered = False
        self._stalled_since_s: float | None = None
        self._exchange: ModelExchanged | None = None
        self.admission: Admission | None = None
        self.resumes = 0
        self.refused: set[str] = set()
        """Addresses that serve another model, and are not to be tried again; never all of them."""

    @property
    def request_id(self) -> str:
        """The name under which the request can be aborted."""
        return self._request.request_id

    @property
    def is_complete(self) -> bool:
        """True once each sequence has its completion."""
        return len(self._completed) >= self._num_sequences

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Output tokens received so far; only of a request for one sequence."""
        return tuple(self._token_ids) if self._num_sequences == 1 else ()

    def next_request(self) -> GenerateRequest:
        """What to send to open the stream, or to go on with it."""
        if self.admission is None:
            return self._request
        tokens = [*self._request.resume.ids, *self._token_ids]
        return resumed(
            self._request,
            seed=self.admission.seed,
            model_fingerprint=self.admission.model_fingerprint,
            tokens=tokens,
        )

    def accept(self, response: GenerateResponse) -> Event | None:
        """Takes in one message and returns the event to hand out, None if there is none.

        Raises:
            ModelExchanged: Another model goes on.
            ServiceError: The message contradicts what came before; the output could not be trusted.
        """
        event = event_from_proto(response, drafters=self._drafters)
        match event:
            case Admission():
                return self._accept_admission(event)
            case TextChunk() | Completion() if self.admission is None:
                raise ServiceError(
                    "the stream began without an admission; is the other side an Outrider service?",
                    request_id=self.request_id,
                )
            case TextChunk():
                self._token_ids.extend(token.id for token in event.tokens)
                if event.tokens:
                    self._failures, self._breaks, self._stalled_since_s = 0, 0, None
            case Completion():
                self._completed.add(event.index)
        return event

    def end(self) -> None:
        """The stream ended without an error.

        Raises:
            ServiceError: Completions are missing.
        """
        if not self.is_complete:
            raise self._named(
                ServiceError(
                    f"the stream ended after {len(self._completed)} of {self._num_sequences} completions"
                )
            )

    def retry(
        self,
        error: OutriderError,
        *,
        address: str,
        now_s: float,
        left_s: float,
        jitter: float,
        was_queued: bool = False,
    ) -> Retry:
        """Decides how to go on after an error.

        Args:
            error: What ended the connection.
            address: Where it led.
            now_s: A monotonic clock.
            left_s: Seconds to the deadline of the request.
            jitter: In [0, 1).
            was_queued: The service had taken the request in, and broke while it waited there.

        Raises:
            OutriderError: `error` itself, when trying again is of no use, its bounds are reached, or the next try would
                come after the deadline. `ModelExchanged` once no address is left that may have the model.
        """
        if isinstance(error, ModelExchanged):
            return self._try_elsewhere(error, address)
        has_output = bool(self._token_ids or self._completed)
        is_open = self.admission is not None
        # A service that ends cancels what it has not taken in yet; a caller's own cancelling does not come here.
        breaks = isinstance(error, (Unavailable, Cancelled))
        # A refusal without advice is no matter of time, unless all others resume at the same moment.
        is_full = isinstance(error, Overloaded) and (is_open or error.retry_after_s is not None)
        # The service may not have noticed yet that the former stream is gone.
        is_lingering = self._breaks > 0 and isinstance(error, AlreadyRunning)
        if not (breaks or is_full or is_lingering):
            raise self._named(error)
        if has_output and self._num_sequences > 1:
            raise self._named(self._of_several(error))

        self._failures += 1
        self._breaks += breaks
        self._was_answered |= is_full or was_queued
        if self._stalled_since_s is None:
            self._stalled_since_s = now_s
        stalled_s = now_s - self._stalled_since_s
        num_addresses = len(self._addresses) - len(self.refused)
        if self._exchange is None and (is_open or self._was_answered):
            is_over = stalled_s >= self._policy.patience_s
        else:
            is_over = self._failures >= self._policy.open_attempts * num_addresses
        if breaks:
            delay_s = self._policy.delay_s(
                self._failures,
                num_addresses=num_addresses,
                jitter=jitter,
                advised_s=error.retry_after_s,
            )
        else:
            delay_s = self._policy.wait_s(
                self._failures, jitter=jitter, advised_s=error.retry_after_s
            )
        if is_over or delay_s >= left_s:
            if self._failures > 1:
                error.add_note(f"gave up after {self._failures} failures in {stalled_s:.1f} s")
            if self._exchange is not None:
                raise self._exchange from error
            raise self._named(error)

        if is_open and breaks:
            self.resumes += 1
        return Retry(
            delay_s=delay_s,
            abort_first=is_lingering and (self._owns_id or is_open),
        )

    def _accept_admission(self, admission: Admission) -> Admission | None:
        """Keeps the first admission; a later one must be of the same generation."""
        self._drafters = admission.drafters
        if self.admission is None:
            self.admission = admission
            return admission
        first = self.admission
        if admission.model_fingerprint != first.model_fingerprint:
            raise self._of_exchange(
                ModelExchanged(
                    f"the stream was resumed by {admission.model!r} with fingerprint {admission.model_fingerprint!r}"
                )
            )
        if (admission.seed, admission.model) != (first.seed, first.model):
            raise self._named(
                ServiceError(
                    f"the stream began with model {first.model!r} and seed {first.seed}, but was resumed with "
                    f"model {admission.model!r} and seed {admission.seed}; do all addresses serve the same models?"
                )
            )
        return None

    def _try_elsewhere(self, error: ModelExchanged, address: str) -> Retry:
        """Goes on at an address that may have the model still.

        Raises:
            ModelExchanged: There is none.
        """
        self.refused.add(address)
        self._failures = 0
        if self._exchange is None:
            self._exchange = self._of_exchange(error)
        if len(self.refused) == len(self._addresses):
            self.refused.discard(address)
            raise self._exchange
        return Retry(delay_s=0.0, abort_first=False)

    def _of_exchange(self, error: ModelExchanged) -> ModelExchanged:
        """The error with what became of the stream."""
        self._named(error)
        if self.admission is None:
            return error
        exchange = ModelExchanged(
            f"the model was exchanged while it was decoding: {len(self._token_ids)} tokens were received of "
            f"{self.admission.model!r}, and no address serves it any more. Ask again for a whole text of the model that "
            f"serves now ({error.message})",
            code=error.code,
            field=error.field,
        )
        self._named(exchange)
        return exchange

    def _of_several(self, error: OutriderError) -> OutriderError:
        """The error with why nobody goes on, and how to get the same texts."""
        seed = self.admission.seed if self.admission is not None else self._request.sampling.seed
        return type(error)(
            f"{error.message}; a stream of several sequences (n > 1) is not resumed once tokens have come: ask again with "
            f"seed {seed} for the same texts",
            code=error.code,
        )

    def _named(self, error: OutriderError) -> OutriderError:
        """The error with this request's name and the tokens received."""
        error.request_id = self.request_id
        error.received_tokens = self.token_ids
        return error
