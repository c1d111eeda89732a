"""Reading addresses."""

from __future__ import annotations

import pytest

from outrider.client.connection.channel import parse_addresses
from outrider.client.connection.errors import InvalidRequest


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:5", ("127.0.0.1:5",)),
        ("host", ("host:50051",)),
        ("[::1]:80", ("[::1]:80",)),
        ("[fe80::1%eth0]", ("[fe80::1%eth0]:50051",)),
        ("a:1, b.example.org:2", ("a:1", "b.example.org:2")),
        (["a:1", "b"], ("a:1", "b:50051")),
        ("a,b:1,a:50051", ("a:50051", "b:1")),
        ("unix:/run/outrider.sock", ("unix:/run/outrider.sock",)),
    ],
)
def test_addresses(given: str | list[str], expected: tuple[str, ...]) -> None:
    """Hosts, ports, brackets, lists and sockets."""
    assert expected == parse_addresses(given)


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "a:",
        ":5",
        "a:0",
        "a:65536",
        "a:5x",
        "::1",
        "http://a:5",
        "a:1,,b:2",
        "a b",
        "unix:",
    ],
)
def test_unreadable_addresses(given: str) -> None:
    """What is no address is refused with an example of one."""
    with pytest.raises(InvalidRequest, match="HOST:PORT") as caught:
        parse_addresses(given)
    assert caught.value.field == "address"


def test_no_address() -> None:
    """An empty list is refused."""
    with pytest.raises(InvalidRequest):
        parse_addresses([])
