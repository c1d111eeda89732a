"""Internal ports with mutual TLS: who may connect, what is refused before it is used, and what a new certificate changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.certificates import Authority, Pair

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import bind, internal_channel, internal_server
from outrider.actors.rpc.tls import TlsFiles, UnfitTls, check

BOUND_S = 60.0


def files(pair: Pair, authority: Authority, name: str = "outrider.internal") -> TlsFiles:
    """As the configuration would name them."""
    return TlsFiles(cert=str(pair.cert), key=str(pair.key), ca=str(authority.ca), name=name)


@asynccontextmanager
async def serving(credentials: Credentials) -> AsyncIterator[str]:
    """A server that repeats what it hears, and says by whose certificate it was reached; its address."""

    async def repeat(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request + b" " + context.auth_context().get("x509_common_name", [b""])[0]

    server = internal_server(credentials)
    method: Any = grpc.stream_stream_rpc_method_handler(repeat, request_deserializer=bytes)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("t", {"Repeat": method}),)
    )
    port = bind(server, "127.0.0.1:0", credentials.tls)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0.0)


class Stream:
    """A stream to it."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._channel = internal_channel(address, credentials)
        self._call: Any = self._channel.stream_stream("/t/Repeat")(timeout=BOUND_S)

    async def say(self, text: bytes) -> bytes:
        """Sends a message and gives the answer."""
        await self._call.write(text)
        answer: bytes = await self._call.read()
        return answer

    async def close(self) -> None:
        """Ends it."""
        await self._channel.close()


async def refusal(address: str, credentials: Credentials) -> str:
    """How a stream without success ends."""
    stream = Stream(address, credentials)
    try:
        with pytest.raises((grpc.aio.AioRpcError, grpc.aio.UsageError)) as caught:
            await stream.say(b"x")
    finally:
        await stream.close()
    assert isinstance(caught.value, grpc.aio.AioRpcError)
    return f"{caught.value.code().name}: {caught.value.details()}"


async def test_only_certificates_of_the_authority_connect(tmp_path: Path) -> None:
    """With the secret in hand, too: without TLS, or by another authority, nobody is heard. Without the secret neither."""
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "other")
    own = Credentials.fresh(files(ours.issue("target"), ours))
    async with serving(own) as address:
        stream = Stream(address, replace(own, tls=files(ours.issue("drafter"), ours)))
        assert await stream.say(b"hello") == b"hello drafter"
        await stream.close()

        assert "UNAVAILABLE" in await refusal(address, replace(own, tls=None))
        stranger = replace(own, tls=files(theirs.issue("stranger"), theirs))
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(address, stranger)
        spy = replace(files(theirs.issue("spy"), theirs), ca=_both(ours, theirs))
        assert "UNAVAILABLE" in await refusal(address, replace(own, tls=spy))
        assert "UNAUTHENTICATED" in await refusal(address, replace(own, secret="guessed"))


def _both(*authorities: Authority) -> str:
    """A file of both authorities, as while one replaces the other."""
    file = authorities[0].ca.with_name("both.pem")
    file.write_bytes(b"".join(authority.ca.read_bytes() for authority in authorities))
    return str(file)


async def test_streams_outlive_a_new_certificate(tmp_path: Path) -> None:
    """A stream goes on when the files are exchanged; what connects afterwards has the new certificate, on both sides."""
    authority = Authority(tmp_path)
    pair = authority.issue("before")
    credentials = Credentials.fresh(files(pair, authority))
    async with serving(credentials) as address:
        stream = Stream(address, credentials)
        assert await stream.say(b"1") == b"1 before"
        authority.issue("after", over=pair)
        assert await stream.say(b"2") == b"2 before"
        fresh = Stream(address, credentials)
        assert await fresh.say(b"3") == b"3 after"
        assert await stream.say(b"4") == b"4 before"
        for one in (stream, fresh):
            await one.close()


async def test_the_server_shows_the_new_certificate(tmp_path: Path) -> None:
    """Told by a client that takes only the new authority."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    pair = old.issue("server")
    ca = _both(old, new)
    credentials = Credentials.fresh(replace(files(pair, old), ca=ca))
    fussy = replace(credentials, tls=files(new.issue("fussy"), new))
    async with serving(credentials) as address:
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(address, fussy)
        new.issue("server", over=pair)
        stream = Stream(address, fussy)
        assert await stream.say(b"x") == b"x fussy"
        await stream.close()


async def test_new_files_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    """Half an exchange, an expired certificate, a file that is gone: what was there before goes on, and what follows is taken."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    credentials = Credentials.fresh(files(pair, authority))
    client = replace(credentials, tls=files(authority.issue("client"), authority))

    async def is_reached(address: str) -> bool:
        stream = Stream(address, client)
        answer = await stream.say(b"x")
        await stream.close()
        return answer == b"x client"

    async with serving(credentials) as address:
        other = authority.issue("other")
        pair.cert.write_bytes(other.cert.read_bytes())
        assert await is_reached(address)
        authority.issue("server", valid_days=-1.0, over=pair)
        assert await is_reached(address)
        pair.key.unlink()
        assert await is_reached(address)
        authority.issue("server", over=pair)
        assert await is_reached(address)


def test_files_are_tried_before_they_are_used(tmp_path: Path) -> None:
    """Each fault by its name."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    good = authority.issue("good")
    check(files(good, authority))
    check(replace(files(good, other), name=""))  # The authority is that of clients.
    expired = authority.issue("expired", valid_days=-1.0)
    junk = tmp_path / "junk"
    junk.write_text("-----BEGIN CERTIFICATE-----\nno\n")
    wrong = {
        "cannot read": replace(files(good, authority), cert=str(tmp_path / "none")),
        "expired": files(expired, authority),
        "certificate has expired": replace(files(expired, authority), name=""),
        "ostname mismatch": files(authority.issue("named", "elsewhere"), authority),
        "unable to get": files(good, other),
        "no certificate and its key": replace(files(good, authority), key=str(expired.key)),
        "not encrypted": replace(files(good, authority), key=str(junk)),
        "no certificates in PEM": replace(files(good, authority), ca=str(junk)),
    }
    for told, faulty in wrong.items():
        with pytest.raises(UnfitTls, match=told):
            check(faulty)
