"""The client for threads: the one for asyncio, each of whose waits blocks the thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from outrider.client.async_client import AsyncClient
from outrider.client.blocking_stream import GenerationStream, RunningTrace
from outrider.client.connection.access import Tls
from outrider.client.connection.channel import DEFAULT_ADDRESS
from outrider.client.connection.retry import RetryPolicy
from outrider.client.connection.timeouts import (
    CALL_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
)
from outrider.client.connection.waits import BlockingWaits, finished
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Generation
from outrider.client.messages.service_info import Health, ModelInfo, Status
from outrider.client.timeline.timeline_model import Timeline


class _BlockingCore(AsyncClient):
    """The asyncio client whose coroutines never suspend."""

    _waits = BlockingWaits()


class Client:
    """Talks to an Outrider service.

        with Client("127.0.0.1:50051") as client:
            for event in client.stream("Once upon a time"):
                ...

    Connects when first used, and may be shared among threads. Short calls, and requests that were not admitted yet, are
    tried again when nobody answers, at each address in turn; a request that is refused because the service is full waits
    as advised; a stream that breaks is taken up again where it stopped. `RetryPolicy` holds the bounds.
    """

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        tls: Tls | None = None,
        token: str | Path | None = None,
    ) -> None:
        """Args:
            address: `HOST:PORT`, or several of one service, as a list or separated by commas.
            timeout_s: Seconds for a whole generation, unless the call says otherwise.
            connect_timeout_s: Seconds for one attempt to connect.
            retry: Bounds of trying again.
            tls: Certificates; None: plain connections. `Tls()` trusts the public authorities.
            token: What proves to the service who calls: itself, or a path of a file whose first line it is, read with each call.

        Raises:
            InvalidRequest: An address cannot be read, a timeout is not a positive number, a file cannot be used, or a value is of
                another kind.
        """
        self._client = _BlockingCore(
            address,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retry=retry,
            tls=tls,
            token=token,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; running calls are cancelled."""
        finished(self._client.close())

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Message] | None = None,
        model: str = "",
        sampling: SamplingOptions | None = None,
        speculation: SpeculationOptions | None = None,
        resume: Sequence[int] = (),
        model_fingerprint: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> GenerationStream:
        """Starts a generation and gives its events as they come. Nothing is sent before the first is asked for.

        Args:
            prompt: Text; exactly one of `prompt`, `tokens` and `messages` is given.
            tokens: Token ids, taken as they are.
            messages: A conversation, rendered by the model's chat template.
            model: The target model; empty takes the service's first.
            sampling: What decides each token.
            speculation: How to be fast.
            resume: Output tokens of this same request received earlier; needs `sampling.seed` and `model_fingerprint`.
            model_fingerprint: Only this model may answer, as an `Admission` or a `ModelInfo` told it; empty takes any.
            request_id: Names the request; default a fresh one.
            timeout_s: Seconds for the whole, waits for room and resumes included; default the client's.

        Raises:
            InvalidRequest: The request cannot be sent as it is. Iterating raises the other errors.
        """
        started = self._client.stream(
            prompt,
            tokens=tokens,
            messages=messages,
            model=model,
            sampling=sampling,
            speculation=speculation,
            resume=resume,
            model_fingerprint=model_fingerprint,
            request_id=request_id,
            timeout_s=timeout_s,
        )
        return GenerationStream(started)

    def generate(
        self,
        prompt: str | None = None,
        *,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Message] | None = None,
        model: str = "",
        sampling: SamplingOptions | None = None,
        speculation: SpeculationOptions | None = None,
        resume: Sequence[int] = (),
        model_fingerprint: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Generation:
        """Generates and returns the whole result. Arguments as of `stream`.

        Raises:
            OutriderError: By cause; see `errors.py`.
        """
        result = self._client.generate(
            prompt,
            tokens=tokens,
            messages=messages,
            model=model,
            sampling=sampling,
            speculation=speculation,
            resume=resume,
            model_fingerprint=model_fingerprint,
            request_id=request_id,
            timeout_s=timeout_s,
        )
        return finished(result)

    def abort(self, request_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> bool:
        """Ends a running request, at whichever address it runs. Idempotent.

        Returns:
            True if it was running.
        """
        return finished(self._client.abort(request_id, timeout_s=timeout_s))

    def models(self, *, timeout_s: float = CALL_TIMEOUT_S) -> tuple[ModelInfo, ...]:
        """The target models and what they offer."""
        return finished(self._client.models(timeout_s=timeout_s))

    def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        model: str = "",
        add_special_tokens: bool | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> tuple[int, ...]:
        """The token ids of a text or a conversation."""
        ids = self._client.tokenize(
            text,
            messages=messages,
            model=model,
            add_special_tokens=add_special_tokens,
            timeout_s=timeout_s,
        )
        return finished(ids)

    def detokenize(
        self,
        ids: Sequence[int],
        *,
        model: str = "",
        skip_special_tokens: bool | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> str:
        """The text of token ids; bytes that are not UTF-8 become U+FFFD."""
        text = self._client.detokenize(
            ids, model=model, skip_special_tokens=skip_special_tokens, timeout_s=timeout_s
        )
        return finished(text)

    def status(self, *, timeout_s: float = CALL_TIMEOUT_S) -> Status:
        """Who serves, and how busy they are."""
        return finished(self._client.status(timeout_s=timeout_s))

    def start_trace(
        self,
        *,
        request_id: str = "",
        seconds: float = 60.0,
        nodes: bool = False,
        max_records: int = 0,
    ) -> RunningTrace:
        """Begins to record what every actor does, for a timeline.

        Args:
            request_id: A request, running or to come; the trace ends with it. Empty: the whole service.
            seconds: The trace ends after this time in any case.
            nodes: Records what became of each candidate, not only of how many.
            max_records: The trace ends when it holds so many; 0: the service's own limit.

        Raises:
            InvalidRequest: A value does not fit its field. `result` raises the other errors.
        """
        started = self._client.start_trace(
            request_id=request_id, seconds=seconds, nodes=nodes, max_records=max_records
        )
        return RunningTrace(started)

    def trace(
        self,
        *,
        request_id: str = "",
        seconds: float = 60.0,
        nodes: bool = False,
        max_records: int = 0,
    ) -> Timeline:
        """Records what every actor does, for a timeline, and waits for its end. Arguments: as of `start_trace`.

        Raises:
            OutriderError: By cause; see `errors.py`.
        """
        timeline = self._client.trace(
            request_id=request_id, seconds=seconds, nodes=nodes, max_records=max_records
        )
        return finished(timeline)

    def health(self, service: str = "", *, timeout_s: float = CALL_TIMEOUT_S) -> Health:
        """What `grpc.health.v1` says; an unknown service is an answer, not an error."""
        return finished(self._client.health(service, timeout_s=timeout_s))
