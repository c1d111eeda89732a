"""Pipelined against lock-step with a real network between drafter and target: two namespaces and a link that delays packets.

The drafter runs in a network namespace of its own, so TCP itself sees the delay: its handshakes, its acknowledgements, its
window. The delay is the kernel's (`tc netem` on both ends of a pair of virtual interfaces) where there is that module;
elsewhere a small program carries the packets between two TUN interfaces and holds each for the same time. Needs root and
`ip`. Whatever happens, the namespace and its interfaces are removed at the end.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.child import Child

PREFIX = "outrider-bench-"
"""Names of our namespaces begin so; the rest is the process that made them."""

COMMAND_S = 10.0
"""Bound on `ip` and `tc`."""

KEYS = ("delay_ms", "temperature")
"""What tells rows apart."""


class Unavailable(RuntimeError):
    """This machine cannot do it; says why."""


@dataclass(slots=True)
class Link:
    """A namespace, and the link to it."""

    namespace: str
    method: str
    """`tc netem` or `tun`."""

    interfaces: tuple[str, str]
    """Here and there."""

    addresses: tuple[str, str]
    """Here and there; a network of two."""

    carrier: Child | None = field(default=None)

    @property
    def prefix(self) -> list[str]:
        """A command that runs another one in the namespace."""
        return ["ip", "netns", "exec", self.namespace]

    def set_delay(self, delay_s: float) -> None:
        """One way, from now on."""
        if self.carrier is not None:
            self.carrier.ask({"delay_s": delay_s})
            return
        near, far = self.interfaces
        for prefix, name in (([], near), (self.prefix, far)):
            _ip([*prefix, *netem_command(name, delay_s)])


def netem_command(interface: str, delay_s: float) -> list[str]:
    """Delays what leaves an interface; the queue holds seconds of the fastest traffic."""
    delay = ["delay", f"{1e6 * delay_s:.0f}us", "limit", "100000"]
    return ["tc", "qdisc", "replace", "dev", interface, "root", "netem", *delay]


@contextmanager
def linked() -> Iterator[Link]:
    """A namespace with a link to it that delays nothing yet.

    Raises:
        Unavailable: This machine has no namespaces, or nothing to delay packets with.
    """
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    if shutil.which("ip") is None:
        raise Unavailable("there is no `ip` (iproute2)")
    _remove_leftovers()
    namespace = f"{PREFIX}{os.getpid()}"
    # Of the process's number, so that two of us do not meet.
    names = (f"orh{os.getpid()}", f"ort{os.getpid()}")
    network = f"10.211.{os.getpid() % 256}"
    link = Link(
        namespace=namespace,
        method="tc netem",
        interfaces=names,
        addresses=(f"{network}.1", f"{network}.2"),
    )
    try:
        _ip(["ip", "netns", "add", namespace])
        if not _has_netem(link):
            link.method = "tun"
            link.carrier = Child("bench.tun")
            link.carrier.ask({"namespace": namespace, "near": names[0], "far": names[1]})
        _up(link)
        yield link
    finally:
        if link.carrier is not None:
            link.carrier.close()
        for command in (["ip", "link", "del", names[0]], ["ip", "netns", "del", namespace]):
            subprocess.run(command, capture_output=True, check=False, timeout=COMMAND_S)


def _remove_leftovers() -> None:
    """Removes namespaces of processes that were killed; their interfaces go with them."""
    folder = Path("/run/netns")
    for entry in folder.iterdir() if folder.is_dir() else ():
        owner = entry.name.removeprefix(PREFIX)
        if (
            entry.name.startswith(PREFIX)
            and owner.isdigit()
            and not Path(f"/proc/{owner}").exists()
        ):
            _ip(["ip", "netns", "del", entry.name])


def _has_netem(link: Link) -> bool:
    """Makes the pair of interfaces; False, and none are left, if their packets cannot be delayed."""
    near, far = link.interfaces
    _ip(["ip", "link", "add", near, "type", "veth", "peer", "name", far])
    if shutil.which("tc") is not None:
        done = subprocess.run(
            netem_command(near, 0.0), capture_output=True, check=False, timeout=COMMAND_S
        )
        if done.returncode == 0:
            _ip(["ip", "link", "set", far, "netns", link.namespace])
            return True
    _ip(["ip", "link", "del", near])
    if not os.path.exists("/dev/net/tun"):
        raise Unavailable("this kernel has neither netem nor /dev/net/tun")
    return False


def _up(link: Link) -> None:
    (near, far), (here, there) = link.interfaces, link.addresses
    _ip(["ip", "addr", "add", here, "peer", there, "dev", near])
    _ip(["ip", "link", "set", near, "up"])
    _ip([*link.prefix, "ip", "addr", "add", there, "peer", here, "dev", far])
    _ip([*link.prefix, "ip", "link", "set", far, "up"])
    _ip([*link.prefix, "ip", "link", "set", "lo", "up"])


def _ip(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def round_trip_s(address: str, *, times: int = 11) -> float:
    """Median seconds of opening a connection: one round trip of packets."""
    host, _, port = address.rpartition(":")
    took = []
    for _ in range(times):
        began = time.perf_counter()
        with socket.create_connection((host, int(port)), timeout=5.0):
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = "25",
    parts: Sequence[str] | None = None,
    temperatures: Sequence[float] = (0.0,),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each delay and temperature; none, and a line that says why, where it cannot be done."""
    from bench import delay
    from bench.between import over_link

    try:
        with linked() as link:
            yield from delay.measure(
                over_link(link),
                target=target,
                draft=draft,
                part=part,
                parts=parts,
                temperatures=temperatures,
                runs=runs,
                is_quick=is_quick,
            )
    except Unavailable as reason:
        print(f"netns: skipped, {reason}")
