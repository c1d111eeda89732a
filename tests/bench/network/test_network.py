"""Hosts in namespaces reach each other over their links only, and nothing of them is left behind. Skipped where none can be made."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.network.network import HERE, Host, Network, Unavailable, network, round_trip_s

SERVE = (
    "import socket, sys\n"
    "server = socket.create_server((sys.argv[1], 0))\n"
    "print(server.getsockname()[1], flush=True)\n"
    "server.settimeout(60)\n"
    "while True: server.accept()[0].sendall(b'x' * int(sys.argv[2]))\n"
)


@contextmanager
def _hosts(*names: str) -> Iterator[Network]:
    try:
        with network(names) as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def _listening(host: Host, *, answer_bytes: int = 1) -> Iterator[str]:
    """A server on a host; its address."""
    server = subprocess.Popen(
        [*host.prefix, sys.executable, "-c", SERVE, host.address, str(answer_bytes)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield f"{host.address}:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def _is_there(host: Host) -> bool:
    near = Path("/sys/class/net") / host.interface
    return near.exists() or bool(host.namespace and (Path("/run/netns") / host.namespace).exists())


def test_packets_are_delayed_on_both_links() -> None:
    """A round trip pays the delay of both ends twice."""
    with _hosts("a", "b") as made, _listening(made.hosts["a"]) as address:
        made.set_link("a", delay_s=0.02)
        made.set_link(HERE, delay_s=0.01)
        assert round_trip_s(address, times=3) >= 0.06


def test_hosts_reach_each_other() -> None:
    """Not only the machine: a host connects to another one."""
    with _hosts("a", "b") as made, _listening(made.hosts["a"]) as address:
        host, _, port = address.rpartition(":")
        connect = f"import socket; print(socket.create_connection(('{host}', {port}), 5).recv(1))"
        done = subprocess.run(
            [*made.hosts["b"].prefix, sys.executable, "-c", connect],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert done.stdout.strip() == "b'x'"


def test_a_cut_link_carries_nothing_until_it_is_mended() -> None:
    """As a pulled cable."""
    with _hosts("a") as made, _listening(made.hosts["a"]) as address:
        host, _, port = address.rpartition(":")
        made.set_link("a", is_cut=True)
        with pytest.raises(OSError, match="timed out"):
            socket.create_connection((host, int(port)), timeout=0.3)
        made.set_link("a")
        assert round_trip_s(address, times=1) < 5.0


def test_nothing_is_left_after_an_error() -> None:
    """Whatever the block raises."""
    hosts: list[Host] = []

    def fail() -> None:
        with _hosts("a", "b") as made:
            hosts.extend(made.hosts.values())
            assert all(_is_there(host) for host in hosts)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert not any(_is_there(host) for host in hosts)
