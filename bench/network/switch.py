"""Carries packets between network namespaces over virtual links: `python -m bench.network.switch`, a `bench.running.child`.

Each host has one link to the switch. A packet leaves its sender's link at the link's bandwidth, in order, and reaches the receiver
after the delays of both links. Told {"hosts": [[namespace, interface, address], ...]} it makes a TUN interface in each namespace (an empty
name is the own one); told {"host", "delay_s", "bits_per_s", "is_cut"} it changes that host's link. The interfaces go when it
ends. A program, because `tc netem` is missing from many kernels and a delay must not depend on that.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import json
import os
import struct
import sys
import threading
import time
from dataclasses import dataclass, field

TUNSETIFF = 0x400454CA
"""The request that names an interface (linux/if_tun.h)."""

IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
"""Packets of IP, with nothing before them."""

MAX_PACKET = 65_536
"""Bytes of an IP packet, at most."""

MAX_QUEUED_S = 0.5
"""A sender that is further ahead of its bandwidth loses packets, as in a router with a full queue."""


@dataclass(slots=True)
class Link:
    """One host's link to the switch."""

    descriptor: int
    delay_s: float = 0.0
    bits_per_s: float = 0.0
    """0: without a limit."""

    is_cut: bool = False
    free_at_s: float = 0.0
    """When what was sent so far has left the sender."""

    due: list[tuple[float, int, bytes]] = field(default_factory=list)
    """Packets on their way here: a heap by time."""

    changed: threading.Condition = field(default_factory=threading.Condition)


def open_tun(name: str) -> int:
    """Makes a TUN interface in the namespace of the calling thread. Returns its file descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def open_tun_in(namespace: str, name: str) -> int:
    """The same in another namespace, or in the own one if it is empty; the calling thread stays where it is in the end."""
    if not namespace:
        return open_tun(name)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _enter(other)
        return open_tun(name)
    finally:
        _enter(own)
        os.close(other)
        os.close(own)


def _enter(namespace: int) -> None:
    """setns(2): Python has it from 3.12 on, this runs on 3.11 too."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class Switch:
    """All links, by IPv4 address."""

    def __init__(self, links: dict[bytes, Link]) -> None:
        self._links = links
        self._order = itertools.count()

    def start(self) -> None:
        """Carries from now on, until the process ends."""
        for link in self._links.values():
            threading.Thread(target=self._take_in, args=(link,), daemon=True).start()
            threading.Thread(target=self._let_out, args=(link,), daemon=True).start()

    def _take_in(self, sender: Link) -> None:
        while True:
            try:
                packet = os.read(sender.descriptor, MAX_PACKET)
            except OSError:
                time.sleep(0.01)  # The interface is not up yet.
                continue
            receiver = self._links.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if receiver is None or sender.is_cut or receiver.is_cut:
                continue
            now_s = time.monotonic()
            left_s = max(now_s, sender.free_at_s)
            if sender.bits_per_s:
                if left_s - now_s > MAX_QUEUED_S:
                    continue
                left_s += 8 * len(packet) / sender.bits_per_s
            sender.free_at_s = left_s
            due_s = left_s + sender.delay_s + receiver.delay_s
            with receiver.changed:
                heapq.heappush(receiver.due, (due_s, next(self._order), packet))
                receiver.changed.notify()

    def _let_out(self, receiver: Link) -> None:
        while True:
            with receiver.changed:
                while not receiver.due or (left_s := receiver.due[0][0] - time.monotonic()) > 0.0:
                    receiver.changed.wait(left_s if receiver.due else None)
                _, _, packet = heapq.heappop(receiver.due)
            try:
                os.write(receiver.descriptor, packet)
            except OSError:
                continue  # As a network does, it loses what nobody can take.


def main() -> None:
    """Carries until the input ends."""
    hosts: list[list[str]] = json.loads(sys.stdin.readline())["hosts"]
    links = {
        address: Link(open_tun_in(namespace, interface)) for namespace, interface, address in hosts
    }
    Switch({_packed(address): link for address, link in links.items()}).start()
    print("{}", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        link = links[order["host"]]
        link.delay_s = order["delay_s"]
        link.bits_per_s = order["bits_per_s"]
        link.is_cut = order["is_cut"]
        print("{}", flush=True)


def _packed(address: str) -> bytes:
    return bytes(int(part) for part in address.split("."))


if __name__ == "__main__":
    main()
