"""A link to a network namespace delays packets, and nothing of it is left behind. Skipped where it cannot be made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.netns import Link, Unavailable, linked, round_trip_s

SERVE = (
    "import socket, sys, time\n"
    "server = socket.create_server((sys.argv[1], 0))\n"
    "print(server.getsockname()[1], flush=True)\n"
    "time.sleep(60)\n"
)


@contextmanager
def _link() -> Iterator[Link]:
    try:
        with linked() as link:
            yield link
    except Unavailable as reason:
        pytest.skip(str(reason))


def _is_there(link: Link) -> bool:
    near = Path("/sys/class/net") / link.interfaces[0]
    return near.exists() or (Path("/run/netns") / link.namespace).exists()


def test_packets_are_delayed_both_ways() -> None:
    """A round trip takes at least twice the delay."""
    with _link() as link:
        server = subprocess.Popen(
            [*link.prefix, sys.executable, "-c", SERVE, link.addresses[1]],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            address = f"{link.addresses[1]}:{int(server.stdout.readline())}"
            link.set_delay(0.02)
            assert round_trip_s(address, times=3) >= 0.04
        finally:
            server.kill()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()
        assert _is_there(link)
    assert not _is_there(link)


def test_nothing_is_left_after_an_error() -> None:
    """Whatever the benchmark raises."""
    links: list[Link] = []

    def fail() -> None:
        with _link() as link:
            links.append(link)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert not _is_there(links[0])
