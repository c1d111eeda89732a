"""The public port with TLS and tokens, as both clients and the command line meet it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority
from tests.cluster.front import Front, Serve
from tests.cluster.scripted import ScriptedTarget
from typer.testing import CliRunner

from outrider.actors.rpc.tls import TlsFiles
from outrider.client import (
    AsyncClient,
    Client,
    Health,
    InvalidRequest,
    OutriderError,
    SamplingOptions,
    TextChunk,
    Tls,
    Unauthorized,
)
from outrider.client.cli.app import app
from outrider.cluster.gateway.bearer import NoTokens, Tokens

BOUND_S = 60.0
SAMPLING = SamplingOptions(seed=1, max_tokens=6)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whom clients trust."""
    return Authority(tmp_path)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file of two tokens."""
    file = tmp_path / "tokens"
    file.write_text("# of Anne\nsesame\n\n  second \n")
    return file


def rewrite(file: Path, text: str) -> None:
    """As its owner does meanwhile."""
    file.write_text(text)


async def refused(address: str, **access: Any) -> str:
    """What both clients say in an error, each within seconds."""
    told = []

    def ask() -> None:
        with Client(address, **access) as client:
            client.generate("ab", sampling=SAMPLING)

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(OutriderError) as caught:
            await asyncio.to_thread(ask)
        told.append(caught.value)
        async with AsyncClient(address, **access) as client:
            for call in (
                client.status(),
                client.generate("ab", sampling=SAMPLING),
                client.trace(seconds=1.0),
            ):
                with pytest.raises(OutriderError) as caught:
                    await call
                told.append(caught.value)
    assert all(isinstance(error, Unauthorized) for error in told), told
    assert len({error.message for error in told}) == 1, told
    return told[0].message


async def served(address: str, **access: Any) -> str:
    """The text of a request, from both clients."""

    def ask() -> str:
        with Client(address, **access) as client:
            assert client.status().accepting
            return client.generate("ab", sampling=SAMPLING).text

    async with AsyncClient(address, **access) as client:
        text = (await client.generate("ab", sampling=SAMPLING)).text
    assert await asyncio.to_thread(ask) == text
    return text


def named(pair: Any, ca: Path | None = None) -> TlsFiles:
    """As the configuration would name them."""
    return TlsFiles(cert=str(pair.cert), key=str(pair.key), ca=str(ca or ""))


async def test_a_port_with_tls(
    serve: Serve, target: ScriptedTarget, authority: Authority, tmp_path: Path
) -> None:
    """Who trusts its certificate is served; the others are told what is wrong, on both sides of the mistake."""
    tls = named(authority.issue("server"))
    plain = await serve(targets=(target.address,))
    front = await serve(targets=(target.address,), tls=tls)
    text = await served(front.address, tls=Tls(ca=authority.ca))
    assert text == await served(plain.address)

    assert "speaks TLS, and this client does not" in await refused(front.address)
    told = await refused(plain.address, tls=Tls(ca=authority.ca))
    assert "does not speak TLS" in told
    told = await refused(front.address, tls=Tls(ca=Authority(tmp_path, "other").ca))
    assert "not trusted" in told
    assert "unable to get local issuer certificate" in told
    told = await refused(front.address, tls=Tls(ca=authority.ca, server_name="elsewhere.example"))
    assert "another name" in told


async def test_a_port_that_asks_for_certificates(
    serve: Serve, target: ScriptedTarget, authority: Authority, tmp_path: Path
) -> None:
    """Those of its own authority, which are valid."""
    clients = Authority(tmp_path, "clients")
    front = await serve(targets=(target.address,), tls=named(authority.issue("server"), clients.ca))

    def shown(pair: Any) -> Tls:
        return Tls(ca=authority.ca, cert=pair.cert, key=pair.key)

    assert await served(front.address, tls=shown(clients.issue("anne")))
    assert "asks for a client's certificate" in await refused(
        front.address, tls=Tls(ca=authority.ca)
    )
    for pair in (authority.issue("spy"), clients.issue("late", valid_days=-1.0)):
        assert "does not take this client's certificate" in await refused(
            front.address, tls=shown(pair)
        )


@pytest.mark.parametrize("with_tls", [True, False])
async def test_a_port_that_asks_for_tokens(
    serve: Serve, target: ScriptedTarget, authority: Authority, tokens: Path, with_tls: bool
) -> None:
    """Any of the file, as it is now. Health needs none, reflection one."""
    tls = Tls(ca=authority.ca) if with_tls else None
    front = await serve(
        targets=(target.address,),
        tokens=str(tokens),
        tls=named(authority.issue("server")) if with_tls else None,
    )
    for token in ("sesame", "second"):
        assert await served(front.address, tls=tls, token=token)
    async with AsyncClient(front.address, tls=tls) as client:
        assert await client.health() is Health.SERVING
    assert "asks for a token" in await refused(front.address, tls=tls)
    for wrong in ("sesam", "sesame2", "# of Anne", "Sesame"):
        told = await refused(front.address, tls=tls, token=wrong.replace(" ", ""))
        assert "does not know the token" in told
        assert wrong not in told

    rewrite(tokens, "third\n")
    assert "does not know the token" in await refused(front.address, tls=tls, token="sesame")
    assert await served(front.address, tls=tls, token="third")
    rewrite(tokens, "# nobody\n")  # As while it is written: the last that could be read hold.
    assert await served(front.address, tls=tls, token="third")


async def test_a_stream_outlives_new_certificates_and_tokens(
    serve: Serve, target: ScriptedTarget, authority: Authority, tokens: Path, tmp_path: Path
) -> None:
    """What runs goes on; what comes needs the new ones. A client that reads its token and authority from files needs no restart."""
    pair = authority.issue("server")
    front = await serve(targets=(target.address,), tls=named(pair), tokens=str(tokens))
    own, ca = tmp_path / "own", tmp_path / "ca"
    rewrite(own, "sesame\n")
    rewrite(ca, authority.ca.read_text())
    whole = await served(front.address, tls=Tls(ca=ca), token=own)
    target.script.hold = asyncio.Event()
    async with AsyncClient(front.address, tls=Tls(ca=ca), token=own) as client:
        stream = client.stream("ab", sampling=SAMPLING)
        await anext(stream)
        fresh = Authority(tmp_path, "fresh")
        fresh.issue("server", over=pair)
        rewrite(tokens, "third\n")
        rewrite(own, "third\n")
        rewrite(ca, fresh.ca.read_text())
        # The same client: a call by the new ones, while its stream runs by the old ones.
        assert (await client.status()).running == 1
        target.script.hold.set()
        text = "".join([event.text async for event in stream if isinstance(event, TextChunk)])
        assert text == whole
        assert stream.resumes == 0
    told = await refused(front.address, tls=Tls(ca=authority.ca), token="third")
    assert "not trusted" in told


async def test_the_command_line(
    serve: Serve,
    target: ScriptedTarget,
    authority: Authority,
    tokens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Options, and variables for the same; the token is never shown."""
    pair = authority.issue("server")
    front: Front = await serve(
        targets=(target.address,), tls=named(pair, authority.ca), tokens=str(tokens)
    )
    mine = authority.issue("anne")
    own = tmp_path / "own"
    rewrite(own, "sesame\n")
    await served(
        front.address, tls=Tls(ca=authority.ca, cert=mine.cert, key=mine.key), token="sesame"
    )
    run: Callable[..., Any] = CliRunner().invoke
    where = ["--address", front.address, "--tls-ca", str(authority.ca)]
    cert = ["--tls-cert", str(mine.cert), "--tls-key", str(mine.key)]
    for command in (["status"], ["models"], ["generate", "ab", "--max-tokens", "3"]):
        done = await asyncio.to_thread(
            run, app, [*command, *where, *cert, "--token-file", str(own)]
        )
        assert done.exit_code == 0, done.output
        assert "sesame" not in done.output
    wrong = await asyncio.to_thread(run, app, ["status", *where, *cert])
    assert (wrong.exit_code, "asks for a token" in wrong.output) == (1, True)
    wrong = await asyncio.to_thread(run, app, ["status", *where])
    assert "--tls-cert" in wrong.output
    monkeypatch.setenv("OUTRIDER_TOKEN", "sesame")
    monkeypatch.setenv("OUTRIDER_TLS_CERT", str(mine.cert))
    monkeypatch.setenv("OUTRIDER_TLS_KEY", str(mine.key))
    done = await asyncio.to_thread(run, app, ["status", *where])
    assert done.exit_code == 0, done.output


def test_what_cannot_be_used_is_said_before_anything_is_sent(
    authority: Authority, tokens: Path, tmp_path: Path
) -> None:
    """By the client, and by the service's reader of tokens; neither shows a token."""
    pair, other = authority.issue("one"), authority.issue("other")
    (tmp_path / "empty").write_text("\n")
    for tls in (
        Tls(ca=tmp_path / "none"),
        Tls(ca=tokens),
        Tls(cert=pair.cert),
        Tls(cert=pair.cert, key=other.key),
    ):
        with pytest.raises(InvalidRequest):
            Client("localhost", tls=tls)
    for token in ("", "two words", "gr\u00fcn", tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(InvalidRequest):
            AsyncClient("localhost", token=token)
    for file in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(NoTokens):
            Tokens(file)


@pytest.mark.parametrize("line", ["anne hidden", "hidden # of Anne", "hidd\u00e9n", "hid\x7fden"])
def test_a_token_that_nobody_can_send_is_told(tmp_path: Path, line: str) -> None:
    """By its line, before a client is refused with it; the token is not shown. A file that is exchanged for such a one is not used."""
    file = tmp_path / "tokens"
    file.write_text("# of Anne\nsesame\n", encoding="utf-8-sig")
    tokens = Tokens(file)
    assert tokens.admit("sesame")
    file.write_text(f"# of Anne\n{line}\nother\n")
    with pytest.raises(NoTokens, match=f"line 2 of {file} is no token") as caught:
        Tokens(file)
    assert "hid" not in str(caught.value)
    assert tokens.admit("sesame")
    assert not tokens.admit("other")
    file.write_text("sesame2\n", encoding="utf-8-sig")
    assert tokens.admit("sesame2")
