"""`outrider apply`: shows what a configuration changes in a running service, and has it carried out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import grpc

from outrider.actors.rpc.grpc_server import internal_channel
from outrider.actors.rpc.tls import UnfitTls
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.schema import parse_config
from outrider.cluster.process.command_failed import (
    FAILED,
    UNAVAILABLE,
    USAGE,
    CommandFailed,
    Report,
)
from outrider.cluster.process.signals import Ending, ending_by_signal
from outrider.cluster.supervise import admin_file
from outrider.cluster.supervise.admin_file import Admin, BadAdminFile
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

LOOK_S = 1.0
"""How often a watched file is looked at. A mounted ConfigMap changes a minute after its object anyway."""

PLAN_S = 30.0
"""Bound on the plan, which is made from memory."""


class NotNow(CommandFailed):
    """What is wanted may be possible a moment later: nobody answers yet, or another change goes on."""


def apply(
    *,
    config: Path,
    admin: Path,
    is_dry_run: bool = False,
    drain_s: float = 600.0,
    report: Report,
    ending: Ending | None = None,
) -> None:
    """Makes a running service what a configuration file says, and waits until what is replaced has ended.

    Args:
        config: The configuration file.
        admin: The service's admin file.
        is_dry_run: Only show the plan.
        drain_s: Seconds that requests may go on at actors that end.
        report: Takes lines on how it goes.
        ending: A signal here ends the wait; what began goes on.

    Raises:
        CommandFailed: The configuration is wrong, the service cannot be reached, or the change failed.
    """
    content = _read(config)
    reached = _admin(admin)
    work = _apply(content, reached, is_dry_run, drain_s, report)
    asyncio.run(work if ending is None else _waited_for(work, ending, report))


def watch(
    *,
    config: Path,
    admin: Path,
    drain_s: float = 600.0,
    report: Report,
    ending: Ending | None = None,
) -> None:
    """Applies a configuration file, and again whenever it changes, until SIGINT or SIGTERM. What cannot be applied is reported
    and leaves the service as it is; it is tried again while the reason is one that passes (`NotNow`).

    Args:
        config: As in `apply`, like `admin`, `drain_s` and `report`.
        ending: What ends it, in place of a signal.
    """
    with nullcontext(ending) if ending is not None else ending_by_signal() as ended:
        applied: bytes | None = None
        said = ""
        while True:
            try:
                present = config.read_bytes()
            except OSError as error:  # A mounted file is exchanged under us.
                report(f"cannot read {config}: {error.strerror}")
            else:
                if present != applied:
                    line, applied = "", present
                    try:
                        apply(
                            config=config, admin=admin, drain_s=drain_s, report=report, ending=ended
                        )
                    except CommandFailed as failure:
                        line = f"not applied: {failure}"
                        if isinstance(failure, NotNow):
                            applied = None
                    if line not in ("", said):
                        report(line)
                    said = line
            if ended.wait(LOOK_S):
                return


async def _waited_for(work: Coroutine[Any, Any, None], ending: Ending, report: Report) -> None:
    """Waits for the end of a change, or for a signal."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
        if ending.is_set():
            task.cancel()
            await asyncio.wait([task])
            report("interrupted; what began goes on")
            return
    task.result()


def _read(path: Path) -> dict[str, Any]:
    """The file's mapping, checked."""
    try:
        data = dict(read_mapping(path))
        parse_config(data, source=str(path))
    except ConfigError as error:
        raise CommandFailed(str(error), USAGE) from error
    return data


def _admin(path: Path) -> Admin:
    try:
        return admin_file.read(path)
    except BadAdminFile as error:
        # A service that starts again writes it anew.
        raise NotNow(str(error), USAGE) from error


async def _apply(
    content: dict[str, Any], admin: Admin, is_dry_run: bool, drain_s: float, report: Report
) -> None:
    request = cluster_pb2.ApplyRequest(
        config_json=json.dumps(content, default=str), is_dry_run=is_dry_run, drain_s=drain_s
    )
    try:
        async with internal_channel(admin.address, admin.credentials) as channel:
            call = cluster_pb2_grpc.ClusterServiceStub(channel).Apply(request)
            async with asyncio.timeout(PLAN_S):
                first = await call.read()
            is_same = True
            if isinstance(first, cluster_pb2.ApplyEvent):
                is_same = not first.plan.changes
                _show(first.plan, report)
            while isinstance(event := await call.read(), cluster_pb2.ApplyEvent):
                if event.HasField("progress"):
                    is_same = False
                    report(event.progress)
                elif not is_same:
                    report("applied; what was replaced ends when its requests have ended")
            if is_same:
                report("nothing to change: the service is as the configuration says")
    except UnfitTls as error:
        raise CommandFailed(str(error), USAGE) from error
    except TimeoutError as error:
        raise NotNow(
            f"the supervisor at {admin.address} did not answer within {PLAN_S:g} s", UNAVAILABLE
        ) from error
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            raise CommandFailed(error.details() or "", USAGE) from error
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise NotNow(
                f"nobody answers at {admin.address}, where the admin file says that the service is; it has ended, or its machine "
                f"cannot be reached ({error.details()})",
                UNAVAILABLE,
            ) from error
        told = f"{error.details()} ({error.code().name})"
        if error.code() is grpc.StatusCode.ABORTED:
            raise NotNow(told, UNAVAILABLE) from error
        raise CommandFailed(told, FAILED) from error


def _show(plan: cluster_pb2.ApplyPlan, report: Report) -> None:
    for change in plan.changes:
        role = cluster_pb2.Role.Name(change.role).removeprefix("ROLE_").lower()
        why = f" ({change.reason})" if change.reason else ""
        report(
            f"{change.kind:<8} {role} {change.name}{why}; cost to running requests: {change.cost}"
        )
