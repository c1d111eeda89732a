"""Ports of Ray's helpers: free ones, told to Ray before it could ask."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from ray._private import parameter, services

from outrider.cluster.ray import ray_ports

NODE = "5e" * 28
"""An id as Ray makes them."""


def test_ports_are_free_and_differ() -> None:
    """Somebody else's are left out."""
    found = ray_ports.free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_full_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than searched for ever."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(ray_ports, "CHOICES", range(port, port + 1))
        monkeypatch.setattr(ray_ports, "MAX_TRIES", 1)
        with pytest.raises(OSError, match="no 1 free ports"):
            ray_ports.free_ports(1)


def test_ray_finds_the_ports_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helpers' command lines and the files that Ray waits for hold the same ports; afterwards Ray is as it was."""
    started: list[str] = []

    def start_raylet(session_dir: str, node_id: str) -> str:
        started.extend(sorted(path.name for path in tmp_path.iterdir()))
        return f"{session_dir} {node_id}"

    module: Any = services
    monkeypatch.setattr(module, "start_raylet", start_raylet)
    parameters: Any = parameter.RayParams
    before = parameters.__init__
    with ray_ports.told_beforehand():
        made = parameters(metrics_export_port=None)
        assert module.start_raylet(session_dir=str(tmp_path), node_id=NODE) == f"{tmp_path} {NODE}"
    told = {
        path.name.removesuffix(f"_{NODE}"): int(path.read_text()) for path in tmp_path.iterdir()
    }
    assert sorted(f"{name}_{NODE}" for name in told) == started
    assert told == {
        "metrics_agent_port": made.metrics_agent_port,
        "metrics_export_port": made.metrics_export_port,
        "dashboard_agent_listen_port": made.dashboard_agent_listen_port,
        "runtime_env_agent_port": made.runtime_env_agent_port,
    }
    assert len(set(told.values())) == 4
    assert parameters.__init__ is before
    assert module.start_raylet is start_raylet
