"""Internal ports serve those who carry the service's secret, and tell the others why not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.rpc.credentials import METADATA_KEY, OPEN, Credentials
from outrider.actors.rpc.grpc_server import bind, internal_channel, internal_server
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.roster.cluster_service import ClusterServicer
from outrider.cluster.roster.roster import Registry
from outrider.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    draft_pb2,
    target_pb2,
    target_pb2_grpc,
)

CREDENTIALS = Credentials.fresh()
BOUND_S = 60.0
FAILED_WRITE = "Internal error from Core"
"""What grpc.aio says of a call that ended while its client wrote."""
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in (target_pb2, draft_pb2, cluster_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@asynccontextmanager
async def serving(method: str, folder: Path) -> AsyncIterator[str]:
    """The server of a method; its address."""
    if "ClusterService" in method:
        server = internal_server(CREDENTIALS)
        servicer = ClusterServicer(Registry(lease_s=10.0))
        cluster_pb2_grpc.add_ClusterServiceServicer_to_server(servicer, server)
        port = bind(server, "127.0.0.1:0")
        await server.start()
        yield f"127.0.0.1:{port}"
        await server.stop(0.0)
        return
    random_table(8, 2, seed=1).save(folder / "table.npz")
    engine = EngineSettings(model=f"tabular:{folder / 'table.npz'}", num_slots=2, max_context=64)
    actor: TargetServer | DraftServer
    if "TargetService" in method:
        actor = TargetServer(
            TargetSettings(
                name="t", incarnation=7, model_name="m", engine=engine, credentials=CREDENTIALS
            )
        )
    else:
        actor = DraftServer(
            DraftSettings(name="d", incarnation=7, engine=engine, credentials=CREDENTIALS)
        )
    address = await actor.start()
    try:
        yield address
    finally:
        await actor.stop(0.0)


async def status_of(method: str, channel: grpc.aio.Channel, data: bytes) -> grpc.StatusCode:
    """How a call with these bytes ends.

    Where a call ends while its client still writes, grpc.aio reports the failed write (INTERNAL) and forgets what the server said. Such
    a call is made again.
    """
    for _ in range(50):
        status, details = await _ended(method, channel, data)
        if status is not grpc.StatusCode.INTERNAL or details != FAILED_WRITE:
            return status
    raise AssertionError(f"{method}: no call got past its own write")


async def _ended(
    method: str, channel: grpc.aio.Channel, data: bytes
) -> tuple[grpc.StatusCode, str]:
    described = METHODS[method]
    kinds = {False: "unary", True: "stream"}
    kind = f"{kinds[described.client_streaming]}_{kinds[described.server_streaming]}"
    call = getattr(channel, kind)(method)
    try:
        if described.client_streaming:

            async def requests() -> AsyncIterator[bytes]:
                yield data

            stream = call(requests(), timeout=BOUND_S)
        elif described.server_streaming:
            stream = call(data, timeout=BOUND_S)
        else:
            await call(data, timeout=BOUND_S)
            return grpc.StatusCode.OK, ""
        async for _ in stream:
            continue
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_asks_for_the_secret_and_for_a_message(
    method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the secret: UNAUTHENTICATED, whatever is sent. With it, bytes that do not parse: INVALID_ARGUMENT, no traceback."""
    rubbish = b"\xff\xff\xff\xff"
    async with serving(method, tmp_path) as address:
        for credentials in (OPEN, Credentials("guessed")):
            async with internal_channel(address, credentials) as channel:
                for data in (b"", rubbish):
                    status = await status_of(method, channel, data)
                    assert status is grpc.StatusCode.UNAUTHENTICATED
        async with internal_channel(address, CREDENTIALS) as channel:
            assert await status_of(method, channel, rubbish) is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_health_needs_no_secret_and_calls_with_it_pass(tmp_path: Path) -> None:
    """Probes have none; a channel made with it carries it."""
    async with serving("/outrider.v1.TargetService/GetInfo", tmp_path) as address:
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=BOUND_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        async with internal_channel(address, CREDENTIALS) as channel:
            info = await target_pb2_grpc.TargetServiceStub(channel).GetInfo(
                target_pb2.GetTargetInfoRequest(), timeout=BOUND_S
            )
            assert info.name == "t"


def test_the_secret_is_not_shown_and_not_guessed() -> None:
    """Not by `repr`, which logs use; each service has one of its own."""
    assert CREDENTIALS.secret not in repr(CREDENTIALS)
    assert CREDENTIALS.secret not in repr(
        DraftSettings(
            name="d", incarnation=1, method="prompt_lookup", engine=None, credentials=CREDENTIALS
        )
    )
    assert Credentials.fresh() != CREDENTIALS
    assert not CREDENTIALS.admits([])
    assert not CREDENTIALS.admits([(METADATA_KEY, "")])
    assert not CREDENTIALS.admits([(METADATA_KEY, CREDENTIALS.secret[:-1])])
    assert CREDENTIALS.admits([("other", "x"), (METADATA_KEY, CREDENTIALS.secret)])
