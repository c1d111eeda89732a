"""Several hosts on one machine: network namespaces, each with an address of its own and a link with delay and bandwidth.

All traffic between hosts crosses `bench.network.switch`. The machine itself is a host, too, so that clients can reach the others. Needs
root, `ip` and /dev/net/tun. Whatever happens, namespaces and interfaces are removed at the end.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.running.child import Child

PREFIX = "outrider-bench-"
"""Names of our namespaces begin so; then come the process that made them and the host."""

COMMAND_S = 10.0
"""Bound on `ip`."""

MAX_HOSTS = 250
"""They share one network of 254 addresses."""

HERE = "here"
"""The name of the machine's own place in the network."""


class Unavailable(RuntimeError):
    """This machine cannot do it; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A place in the network."""

    name: str
    address: str
    namespace: str
    """Empty for the machine itself."""

    interface: str

    @property
    def prefix(self) -> list[str]:
        """A command that runs another one there."""
        return ["ip", "netns", "exec", self.namespace] if self.namespace else []


class Network:
    """Hosts by name, and their links. Made by `network`."""

    def __init__(self, hosts: dict[str, Host], switch: Child) -> None:
        self.hosts = hosts
        self._switch = switch

    def set_link(
        self, name: str, *, delay_s: float = 0.0, bits_per_s: float = 0.0, is_cut: bool = False
    ) -> None:
        """What a host's link does from now on.

        Args:
            name: The host.
            delay_s: One way, between the host and the switch. A packet pays for both ends.
            bits_per_s: What the host can send; 0 without a limit.
            is_cut: Nothing gets through.
        """
        self._switch.ask(
            {
                "host": self.hosts[name].address,
                "delay_s": delay_s,
                "bits_per_s": bits_per_s,
                "is_cut": is_cut,
            }
        )


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Makes hosts, and `HERE` beside them. Their links delay nothing yet.

    Raises:
        Unavailable: This machine has no namespaces or no TUN interfaces.
    """
    _check_machine()
    if len(names) > MAX_HOSTS:
        raise Unavailable(f"{len(names)} hosts asked for, and at most {MAX_HOSTS} fit")
    _remove_leftovers()
    hosts = {host.name: host for host in _plan([HERE, *names])}
    switch = None
    try:
        for host in hosts.values():
            if host.namespace:
                _ip(["ip", "netns", "add", host.namespace])
        switch = Child("bench.network.switch")
        switch.ask({"hosts": [[h.namespace, h.interface, h.address] for h in hosts.values()]})
        for host in hosts.values():
            _up(host)
        yield Network(hosts, switch)
    finally:
        if switch is not None:
            switch.close()
        for host in hosts.values():
            if host.namespace:
                _run(["ip", "netns", "del", host.namespace])


def round_trip_s(address: str, *, times: int = 11) -> float:
    """Median seconds of opening a connection to HOST:PORT: one round trip of packets."""
    host, _, port = address.rpartition(":")
    took = []
    for _ in range(times):
        began = time.perf_counter()
        with socket.create_connection((host, int(port)), timeout=5.0):
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    if shutil.which("ip") is None:
        raise Unavailable("there is no `ip` (iproute2)")
    if not os.path.exists("/dev/net/tun"):
        raise Unavailable("there is no /dev/net/tun")


def _plan(names: Sequence[str]) -> Iterator[Host]:
    # Of the process's number, so that two of us do not meet.
    own = os.getpid()
    for index, name in enumerate(names):
        yield Host(
            name=name,
            address=f"10.{96 + own // 256 % 128}.{own % 256}.{index + 1}",
            namespace=f"{PREFIX}{own}-{name}" if name != HERE else "",
            interface=f"or{own}x{index}",
        )


def _up(host: Host) -> None:
    _ip([*host.prefix, "ip", "addr", "add", f"{host.address}/24", "dev", host.interface])
    _ip([*host.prefix, "ip", "link", "set", host.interface, "up"])
    if host.namespace:
        _ip([*host.prefix, "ip", "link", "set", "lo", "up"])


def _remove_leftovers() -> None:
    """Removes namespaces of processes that were killed; their interfaces go with them."""
    folder = Path("/run/netns")
    for entry in folder.iterdir() if folder.is_dir() else ():
        owner = entry.name.removeprefix(PREFIX).partition("-")[0]
        is_ours = entry.name.startswith(PREFIX) and owner.isdigit()
        if is_ours and not Path(f"/proc/{owner}").exists():
            _run(["ip", "netns", "del", entry.name])


def _ip(command: Sequence[str]) -> None:
    done = _run(command)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
