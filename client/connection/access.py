"""How a client proves who it is, and whom it trusts: certificates and a token. Every channel of the client is made here."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from outrider.client.connection.errors import InvalidRequest, Unauthorized
from outrider.client.connection.wanted import of_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS to the service. Files are PEM; when they are exchanged, new calls connect with what is there then."""

    ca: str | Path | None = None
    """Authorities that may vouch for the service. None: the public ones that gRPC carries."""

    cert: str | Path | None = None
    """The client's own certificate, where the service asks for one. Needs `key`."""

    key: str | Path | None = None
    """Its key, not encrypted."""

    server_name: str | None = None
    """The name in the service's certificate. None: the host of the address."""


@dataclass(frozen=True, slots=True)
class Access:
    """Certificates and a token, checked."""

    tls: Tls | None = None
    """None: plain connections."""

    token: str | Path | None = field(default=None, repr=False)
    """What each call carries: itself, or the first line of a file that is neither blank nor a comment (#), read with each call.
    None: nothing."""

    def __post_init__(self) -> None:
        """Raises: InvalidRequest: A value is of another kind, a file cannot be used, or there is no token in it."""
        self._metadata()
        if self.tls is not None:
            _check(self.tls)

    def versions(self) -> tuple[int, ...]:
        """Differs once a certificate has been exchanged."""
        return tuple(_changed_ns(path) for path in _files(self.tls))

    def channel(self, kind: Any, address: str, options: Sequence[tuple[str, int]]) -> Any:
        """A channel.

        Args:
            kind: The module that makes it: `grpc` for threads, `grpc.aio` for asyncio.
            address: A gRPC target.
            options: Of the channel.

        Raises:
            Unauthorized: A file cannot be read any more. Calls of the channel raise it, too.
        """
        if self.tls is None:
            channel = kind.insecure_channel(address, options=options)
        else:
            named = _options(self.tls, options)
            with _still_there():
                credentials = _credentials(self.tls)
            channel = kind.secure_channel(address, credentials, options=named)
        return channel if self.token is None else _Carrying(channel, self._metadata)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self.token is None:
            return ()
        # A token is not shown, not even one of another kind.
        token = self.token
        if not isinstance(token, str | Path):
            kind = type(token).__name__
            raise InvalidRequest(f"token is of {kind}; str or Path is needed", field="token")
        if isinstance(token, Path):
            lines = map(str.strip, _read(token, "token").decode(errors="replace").splitlines())
            token = next((line for line in lines if line and not line.startswith("#")), "")
        if not token or not (token.isascii() and token.isprintable()) or " " in token:
            raise InvalidRequest(
                "the token is empty, or has characters that no token has", field="token"
            )
        return (("authorization", f"Bearer {token}"),)


class _Carrying:
    """A channel whose calls carry metadata, made for each: those kinds of calls that the service has. No interceptor: with asyncio one
    puts a task before each message."""

    def __init__(self, channel: Any, metadata: Callable[[], tuple[tuple[str, str], ...]]) -> None:
        self._channel = channel
        self._metadata = metadata

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """See `grpc.Channel`."""
        return self._carrying(self._channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """See `grpc.Channel`."""
        return self._carrying(self._channel.unary_stream(*args, **kwargs))

    def close(self) -> Any:
        """See `grpc.Channel`."""
        return self._channel.close()

    def _carrying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def carry(*args: Any, **kwargs: Any) -> Any:
            with _still_there():
                metadata = self._metadata()
            return call(*args, metadata=metadata, **kwargs)

        return carry


@contextlib.contextmanager
def _still_there() -> Iterator[None]:
    """Around reading again what could be used when the client was made: no request is wrong because it cannot be now."""
    try:
        yield
    except InvalidRequest as error:
        raise Unauthorized(error.message, field=error.field) from error


def _files(tls: Tls | None) -> tuple[Path, ...]:
    if tls is None:
        return ()
    return tuple(Path(path) for path in (tls.ca, tls.cert, tls.key) if path is not None)


def _check(tls: Tls) -> None:
    of_kind("tls", tls, Tls)
    for name in ("ca", "cert", "key"):
        if getattr(tls, name) is not None:
            of_kind(f"tls.{name}", getattr(tls, name), (str, Path))
    if tls.server_name is not None:
        of_kind("tls.server_name", tls.server_name, str)
    if (tls.cert is None) != (tls.key is None):
        raise InvalidRequest("tls.cert and tls.key go together; give both or neither", field="tls")
    for path in _files(tls):
        _read(path, "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise InvalidRequest(f"{tls.ca} holds no certificates in PEM", field="tls.ca") from error
    try:
        if tls.cert is not None and tls.key is not None:
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        raise InvalidRequest(
            f"{tls.cert} and {tls.key} are no certificate and its key, in PEM and not encrypted",
            field="tls.cert",
        ) from error


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    ca, cert, key = (
        None if path is None else _read(Path(path), "tls") for path in (tls.ca, tls.cert, tls.key)
    )
    return grpc.ssl_channel_credentials(ca, key, cert)


def _options(tls: Tls, options: Sequence[tuple[str, int]]) -> list[tuple[str, int | str]]:
    named: list[tuple[str, int | str]] = list(options)
    if tls.server_name is not None:
        named.append(("grpc.ssl_target_name_override", tls.server_name))
    return named


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(f"cannot read {path}: {reason}", field=what) from error


def _changed_ns(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0
