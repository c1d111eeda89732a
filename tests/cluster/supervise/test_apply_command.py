"""The command that has a running service changed, and signals that come meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.in_process import InProcessHost, until

from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_specs import actor_specs
from outrider.cluster.process.command_failed import UNAVAILABLE, CommandFailed
from outrider.cluster.process.signals import Ending
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.start.apply import apply, watch
from outrider.cluster.supervise import admin_file
from outrider.cluster.supervise.admin_file import Admin
from outrider.cluster.supervise.applying import Applier
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings

BEFORE: dict[str, Any] = {"targets": [{"model": "org/t", "replicas": 2}], "drafters": []}
AFTER: dict[str, Any] = {"targets": [{"model": "org/t"}], "drafters": []}


async def test_a_signal_ends_the_wait_for_what_drains(tmp_path: Path) -> None:
    """The target, whose texts may go on for an hour, goes on ending."""
    config = parse_config(BEFORE, source="test")
    supervisor = Supervisor(actor_specs(config), InProcessHost(), SupervisorSettings())
    supervisor.servicer.apply = Applier(config, supervisor).apply
    await supervisor.launch()
    address, credentials = supervisor.admin
    wanted, told = tmp_path / "wanted.json", list[str]()
    wanted.write_text(json.dumps(AFTER))
    ending = Ending()
    try:
        with admin_file.written(
            tmp_path / "admin", Admin(address=address, credentials=credentials)
        ):
            change = asyncio.create_task(
                asyncio.to_thread(
                    apply,
                    config=wanted,
                    admin=tmp_path / "admin",
                    drain_s=3_600.0,
                    report=told.append,
                    ending=ending,
                )
            )
            await until(lambda: any(line.startswith("applied") for line in told))
            ending.note(signal.SIGTERM)
            await asyncio.wait_for(change, 60.0)
        assert told[-1] == "interrupted; what began goes on"
        states = {status.name: status.state for status in supervisor.status()}
        assert states["t-1"] is ActorState.DRAINING
    finally:
        ending.close()
        await supervisor.stop(0.0)


async def test_a_watched_file_is_tried_again_while_the_reason_passes(tmp_path: Path) -> None:
    """There is no admin file yet, and then another change is being carried out."""
    config, host = parse_config(BEFORE, source="test"), InProcessHost()
    supervisor = Supervisor(actor_specs(config), host, SupervisorSettings())
    applier = Applier(config, supervisor)
    supervisor.servicer.apply = applier.apply
    await supervisor.launch()
    address, credentials = supervisor.admin
    admin = tmp_path / "admin"
    more, fewer, told = tmp_path / "more.json", tmp_path / "fewer.json", list[str]()
    more.write_text(json.dumps({"targets": [{"model": "org/t", "replicas": 3}], "drafters": []}))
    fewer.write_text(json.dumps(AFTER))
    host.slow["t-2"] = asyncio.Event()
    ending = Ending()
    watching = asyncio.create_task(
        asyncio.to_thread(
            watch, config=fewer, admin=admin, drain_s=0.0, report=told.append, ending=ending
        )
    )
    try:
        await until(lambda: any(str(admin) in line for line in told))
        with admin_file.written(
            tmp_path / "first", Admin(address=address, credentials=credentials)
        ):
            other = asyncio.create_task(
                asyncio.to_thread(
                    apply, config=more, admin=tmp_path / "first", report=lambda line: None
                )
            )
            await until(lambda: applier.is_busy)
            with pytest.raises(CommandFailed, match="another change") as refused:
                await asyncio.to_thread(
                    apply, config=fewer, admin=tmp_path / "first", report=lambda line: None
                )
            assert refused.value.exit_code == UNAVAILABLE
            with admin_file.written(admin, Admin(address=address, credentials=credentials)):
                await until(lambda: any("another change" in line for line in told))
                host.slow["t-2"].set()
                await asyncio.wait_for(other, 60.0)
                await until(lambda: any(line.startswith("applied") for line in told))
                gone = {"t-1", "t-2"}
                await until(lambda: gone.isdisjoint(one.name for one in supervisor.status()))
        assert len([line for line in told if line.startswith("not applied")]) == 2
    finally:
        ending.note(signal.SIGTERM)
        await asyncio.wait_for(watching, 60.0)
        ending.close()
        await supervisor.stop(0.0)
