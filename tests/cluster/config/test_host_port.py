"""HOST:PORT."""

from __future__ import annotations

import pytest

from outrider.cluster.config.host_port import join_host_port, split_host_port


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:50051", "127.0.0.1", 50051), ("[::1]:0", "::1", 0), ("a.b:65535", "a.b", 65535)],
)
def test_address_comes_apart_and_together(address: str, host: str, port: int) -> None:
    """Names, IPv4 and IPv6."""
    assert split_host_port(address) == (host, port)
    assert join_host_port(host, port) == address


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "::1:50", "host:", "host:x", "h:-1", "h:65536"]
)
def test_anything_else_is_refused_with_its_value(address: str) -> None:
    """Whoever mistyped sees what was read."""
    with pytest.raises(ValueError, match=repr(address)):
        split_host_port(address)
