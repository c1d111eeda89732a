"""Drafters are told who asks, so that they can keep apart what they remember."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority
from tests.cluster.front import Serve
from tests.cluster.scripted import ScriptedDrafter, ScriptedTarget

from outrider.actors.rpc.tls import TlsFiles
from outrider.client import AsyncClient, SamplingOptions, Tls

BOUND_S = 60.0


@pytest.fixture
async def drafter() -> AsyncIterator[ScriptedDrafter]:
    """Notes who attaches it."""
    made = ScriptedDrafter("d0")
    await made.start()
    yield made
    await made.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for something to come true."""
    async with asyncio.timeout(BOUND_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def tenant_of(
    address: str, drafter: ScriptedDrafter, expected: int, access: dict[str, Any]
) -> int:
    """What the drafter is told of a request, its `expected`th."""
    async with AsyncClient(address, **access) as client:

        async def all_are_there() -> bool:
            return sum(actor.ready for actor in (await client.status()).actors) == 3

        async def is_attached() -> bool:
            return len(drafter.attached) == expected

        await until(all_are_there)
        await client.generate(tokens=[97, 98], sampling=SamplingOptions(max_tokens=4))
        await until(is_attached)
    return drafter.attached[-1].tenant


@pytest.mark.parametrize("shows", ["token", "certificate", "nothing"])
async def test_drafters_are_told_who_asks(
    serve: Serve, target: ScriptedTarget, drafter: ScriptedDrafter, tmp_path: Path, shows: str
) -> None:
    """A number that is the same for the same client, another for another, and 0 where clients cannot be told apart."""
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    server = authority.issue("server")
    tls = TlsFiles(cert=str(server.cert), key=str(server.key), ca=str(clients.ca))
    front = await serve(
        targets=(target.address,),
        drafters=(("d0", drafter.address),),
        tls=tls if shows == "certificate" else None,
    )

    def access(name: str) -> dict[str, Any]:
        if shows == "certificate":
            pair = clients.issue(name)
            return {"tls": Tls(ca=authority.ca, cert=pair.cert, key=pair.key)}
        return {"token": name} if shows == "token" else {}

    anne, bob, again = [
        await tenant_of(front.address, drafter, number, access(name))
        for number, name in enumerate(("anne", "bob", "anne"), start=1)
    ]
    if shows == "nothing":
        assert (anne, bob, again) == (0, 0, 0)
    else:
        assert 0 != anne == again != bob != 0
