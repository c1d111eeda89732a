"""Ports of Ray's helpers: free ones, and written down where Ray looks for them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from ray import _raylet

from outrider.cluster.ray import ray_ports

RAYLET: Any = _raylet  # its stub leaves these out

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


def test_ray_finds_the_ports_written_down(tmp_path: Path) -> None:
    """As soon as its central process has made the node known, and not before."""
    ports = {name: 12_345 + index for index, name in enumerate(ray_ports.OPTIONS)}
    assert not ray_ports.write_down(ports, tmp_path / "session")
    assert not ray_ports.write_down(ports, tmp_path)
    (tmp_path / RAYLET.get_port_filename(NODE, "gcs_server_port")).write_text("1")
    assert ray_ports.write_down(ports, tmp_path)
    for name, port in ports.items():
        assert RAYLET.wait_for_persisted_port(str(tmp_path), NODE, name, timeout_ms=0) == port
