"""The client for threads: the one for asyncio, each of whose waits blocks the thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from outrider.client.async_client import AsyncClient
from outrider.client.blocking_stream import GenerationStream, RunningTrace
from outrider.client.connection.access import Tls
from outrider.client.connection.channel import DEFAULT_ADDRESS
from outrider.client.connection.retry import RetryPolicy
from outrider.client.connection.timeouts import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from outrider.client.connection.waits import BlockingWaits, finished

_Args = ParamSpec("_Args")
_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class _BlockingCore(AsyncClient):
    """The asyncio client whose coroutines never suspend."""

    _waits = BlockingWaits()


def _turned(
    method: Callable[Concatenate[AsyncClient, _Args], _Given], turn: Callable[[_Given], _Result]
) -> Callable[Concatenate[Client, _Args], _Result]:
    """The method of `Client` with the arguments and the documentation of that of `AsyncClient`.

    Args:
        method: Of `AsyncClient`.
        turn: Makes what the blocking one gives of what it gives.
    """

    @wraps(method)
    def turned(self: Client, /, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        return turn(method(self._client, *args, **kwargs))

    if isinstance(turn, type):
        # `help` and other readers of signatures are told what this one gives.
        told: Any = turned
        told.__annotations__ = {**method.__annotations__, "return": turn.__name__}
        told.__signature__ = signature(method).replace(return_annotation=turn.__name__)
    return turned


def _blocking(
    method: Callable[Concatenate[AsyncClient, _Args], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Client, _Args], _Result]:
    """The method that waits by blocking the thread."""
    return _turned(method, finished)


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

    stream = _turned(AsyncClient.stream, GenerationStream)
    generate = _blocking(AsyncClient.generate)
    abort = _blocking(AsyncClient.abort)
    models = _blocking(AsyncClient.models)
    tokenize = _blocking(AsyncClient.tokenize)
    detokenize = _blocking(AsyncClient.detokenize)
    status = _blocking(AsyncClient.status)
    health = _blocking(AsyncClient.health)
    start_trace = _turned(AsyncClient.start_trace, RunningTrace)
    trace = _blocking(AsyncClient.trace)
