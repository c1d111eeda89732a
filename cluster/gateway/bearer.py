"""Who a client is: the tokens that the public port asks for, and a number for each, so that what one was answered is not used for another."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc
import structlog

from outrider.actors.rpc.credentials import HEALTH
from outrider.actors.rpc.small_file import file_version, read_small

METADATA_KEY = "authorization"
SCHEME = "Bearer"
NO_TOKEN = "this service asks for a token: `--token-file` of the command, `token` of the client, or `authorization: Bearer TOKEN` in the metadata"
WRONG_TOKEN = "this service does not know the token"

NOBODY = 0
"""Number of those who show neither token nor certificate: they are one."""

NAMES = ("x509_common_name", "x509_subject_alternative_name", "x509_subject")
"""What gRPC tells of a client's certificate and stays the same when it is renewed."""

log = structlog.get_logger(__name__)


class NoTokens(ValueError):
    """The file cannot be read, or holds none."""


class Tokens:
    """The tokens in a file, read again when it has changed. Kept as digests, so that all comparisons take the same time."""

    def __init__(self, file: Path) -> None:
        """Reads them.

        Raises:
            NoTokens: The file cannot be read, or holds none.
        """
        self._file = file
        self._seen = file_version(file)
        self._digests = _read(file)

    def admit(self, token: str) -> bool:
        """Whether the token is one of them. Takes the same time for every wrong one."""
        self._look()
        digest = _digest(token)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        return found

    def _look(self) -> None:
        seen = file_version(self._file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._digests = _read(self._file)
        except NoTokens as error:
            log.warning("new tokens not used", reason=str(error))
        else:
            log.info("new tokens", file=str(self._file), tokens=len(self._digests))


class TokenGuard(grpc.aio.ServerInterceptor):
    """Refuses calls without a known token with UNAUTHENTICATED; those of health need none. Costs admitted calls no message."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """See `grpc.aio.ServerInterceptor`."""
        details = handler_call_details
        if not details.method.startswith(HEALTH):
            token = token_of(details.invocation_metadata or ())
            if token is None or not self._tokens.admit(token):
                return _refusing(NO_TOKEN if token is None else WRONG_TOKEN)
        return await continuation(details)


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The token that a call carries; None if it carries none."""
    for key, value in metadata:
        scheme, _, token = (value if isinstance(value, str) else "").partition(" ")
        if key == METADATA_KEY and scheme.lower() == SCHEME.lower() and token.strip():
            return token.strip()
    return None


def tenant_of(
    metadata: Iterable[tuple[str, str | bytes]], auth_context: Mapping[str, Iterable[bytes]]
) -> int:
    """A number of 64 bits that is the same for the same client at every coordinator, and tells nothing of the token.

    Args:
        metadata: Of the call; its token counts first.
        auth_context: Of the call; names in the client's certificate, if it has one.
    """
    token = token_of(metadata)
    names = [name for key in NAMES for name in (key.encode(), *sorted(auth_context.get(key, ())))]
    if token is not None:
        shown = b"token\0" + token.encode()
    elif len(names) > len(NAMES):
        shown = b"certificate\0" + b"\0".join(names)
    else:
        return NOBODY
    digest = hashlib.sha256(b"outrider tenant\0" + shown).digest()
    return int.from_bytes(digest[:8], "little") or 1


def _refusing(why: str) -> grpc.RpcMethodHandler[Any, Any]:
    """Ends a call of any kind before its first message is read."""

    async def refuse(requests: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _read(file: Path) -> tuple[bytes, ...]:
    try:
        # Editors may begin a file with a mark that is no part of the first token.
        lines = read_small(file).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NoTokens(f"cannot read the tokens in {file}: {reason}") from error
    told = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    tokens = [(number, line) for number, line in told if line and not line.startswith("#")]
    if not tokens:
        raise NoTokens(f"{file} holds no token; write one a line")
    for number, token in tokens:
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise NoTokens(
                f"line {number} of {file} is no token that a client can send: ASCII without blanks, and remarks on lines of "
                "their own, with # in front"
            )
    return tuple(_digest(token) for _, token in tokens)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
