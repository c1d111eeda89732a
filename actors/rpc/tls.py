"""TLS of gRPC servers and channels, from files that may be exchanged while they run. The only place that makes either.

A server looks at its files with each new connection; a channel is made of what they hold then. Connections that exist go on
with what they began with. New files that do not fit are logged once, and the last that did stay in use.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import structlog

from outrider.actors.rpc.small_file import FileVersion, file_version, read_small

log = structlog.get_logger(__name__)


class UnfitTls(ValueError):
    """The files cannot be used; says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where a certificate, its key, and the authorities of the other side are. PEM, read on the machine that uses them."""

    cert: str
    """The certificate, followed by those that lead to its authority."""

    key: str
    """Its key, not encrypted."""

    ca: str = ""
    """Authorities whose certificates the other side must have. Empty: a server asks for none."""

    name: str = ""
    """The DNS name in the certificate of each server, where all have the same in place of their own. Needs `ca`."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file."""
        return tuple(path for path in (self.cert, self.key, self.ca) if path)


@dataclass(frozen=True, slots=True)
class _Content:
    """What the files hold."""

    cert: bytes
    key: bytes
    ca: bytes | None


class _Watched:
    """The content of the files as it is now; the last that fitted, if they do not."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _versions(files)
        self._content = _read(files)

    def current(self) -> tuple[_Content, bool]:
        """The content, and whether it has changed since the last time that anybody asked. Any thread."""
        seen = _versions(self._files)
        if seen == self._seen:
            return self._content, False
        self._seen = seen
        try:
            self._content = _read(self._files)
        except UnfitTls as error:
            log.warning("new certificate not used", cert=self._files.cert, reason=str(error))
            return self._content, False
        log.info("new certificate", cert=self._files.cert)
        return self._content, True


@functools.cache
def _watched(files: TlsFiles) -> _Watched:
    return _Watched(files)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """What a server proves itself with, and asks of its clients if `ca` is given. Follows the files.

    Raises:
        UnfitTls: The files cannot be used.
    """
    watched = _Watched(files)

    def news() -> Any:
        """gRPC asks with each new connection, on a thread of its own; None: use what you have."""
        content, has_changed = watched.current()
        return _configuration(content) if has_changed else None

    return grpc.dynamic_ssl_server_credentials(
        _configuration(watched.current()[0]), news, require_client_authentication=bool(files.ca)
    )


def _configuration(content: _Content) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(content.key, content.cert)], root_certificates=content.ca
    )


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """What a channel proves itself with, and whom it trusts, as the files are now.

    Raises:
        UnfitTls: The files cannot be used, and never could be in this process.
    """
    content, _ = _watched(files).current()
    return grpc.ssl_channel_credentials(content.ca, content.key, content.cert)


def check(files: TlsFiles) -> None:
    """Makes sure that the files can be used on this machine.

    Raises:
        UnfitTls: They cannot.
    """
    _read(files)


def _versions(files: TlsFiles) -> tuple[FileVersion, ...]:
    """What differs once a file has been exchanged or written."""
    return tuple(file_version(path) for path in files.paths)


def _read(files: TlsFiles) -> _Content:
    contents: dict[str, bytes] = {}
    for path in files.paths:
        try:
            contents[path] = read_small(Path(path))
        except OSError as error:
            raise UnfitTls(f"cannot read {path}: {error.strerror}") from error
    _shake_hands(files)
    return _Content(contents[files.cert], contents[files.key], contents.get(files.ca))


def _shake_hands(files: TlsFiles) -> None:
    """Tries the files on themselves: the key belongs to the certificate, which is valid today; its authority vouches for it as a server's
    and as a client's; it has the name. Where no authority is told, or one of clients only, the first two are tried.

    Raises:
        UnfitTls: One of these does not hold.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        try:
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(files.cert, files.key, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise UnfitTls(
                f"{files.cert} and {files.key} are no certificate and its key, in PEM and not encrypted "
                f"({_reason(error)})"
            ) from error
    client.check_hostname = bool(files.name)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if files.ca:
        try:
            server.load_verify_locations(files.ca)
        except (ssl.SSLError, OSError) as error:
            raise UnfitTls(f"{files.ca} holds no certificates in PEM ({_reason(error)})") from error
    if files.name:
        client.load_verify_locations(files.ca)
        server.verify_mode = ssl.CERT_REQUIRED
    else:
        client.load_verify_locations(files.cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname=files.name or None)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (client_side, server_side, client_side, server_side):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLError as error:
        raise UnfitTls(f"{files.cert} does not do: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """What OpenSSL says, without its own coordinates."""
    told = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(told or error.strerror or error).lower().replace("_", " ")
