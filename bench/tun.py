"""Carries packets between two network namespaces, each a constant time late: `python -m bench.tun`, a `bench.child`.

Told {"namespace", "near", "far"} it makes a TUN interface here and one in the namespace; told {"delay_s"} it delays from then on.
The interfaces go when it ends. Stands in for `tc netem` where the kernel has none.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

TUNSETIFF = 0x400454CA
"""The request that names an interface (linux/if_tun.h)."""

IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
"""Packets of IP, with nothing before them."""

MTU = 65536
"""Bytes of a packet, at most."""


@dataclass(slots=True)
class Delay:
    """Shared by both directions."""

    seconds: float = 0.0


def open_tun(name: str) -> int:
    """Makes a TUN interface in the namespace of the calling thread. Returns its file descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def open_tun_in(namespace: str, name: str) -> int:
    """The same in another namespace; the calling thread stays where it is in the end."""
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


def carry(source: int, sink: int, delay: Delay) -> None:
    """Moves packets one way for ever, in order. One thread takes them in, the calling one lets them out."""
    waiting: deque[tuple[float, bytes]] = deque()
    news = threading.Condition()

    def take_in() -> None:
        while True:
            try:
                packet = os.read(source, MTU)
            except OSError:
                continue  # The interface is not up yet.
            with news:
                waiting.append((time.monotonic() + delay.seconds, packet))
                news.notify()

    threading.Thread(target=take_in, daemon=True).start()
    while True:
        with news:
            while not waiting:
                news.wait()
            due, packet = waiting.popleft()
        left = due - time.monotonic()
        if left > 0.0:
            time.sleep(left)
        try:
            os.write(sink, packet)
        except OSError:
            continue  # As a network does, it loses what nobody can take.


def main() -> None:
    """Carries until the input ends."""
    order = json.loads(sys.stdin.readline())
    near = open_tun(order["near"])
    far = open_tun_in(order["namespace"], order["far"])
    delay = Delay()
    for source, sink in ((near, far), (far, near)):
        threading.Thread(target=carry, args=(source, sink, delay), daemon=True).start()
    print("{}", flush=True)
    for line in sys.stdin:
        delay.seconds = json.loads(line)["delay_s"]
        print("{}", flush=True)


if __name__ == "__main__":
    main()
