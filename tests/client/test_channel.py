"""Reading addresses, and the way to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outrider.client import NO_RETRY, Client, InvalidRequest, Unavailable
from outrider.client.connection.channel import parse_addresses

if TYPE_CHECKING:
    from tests.client.conftest import FakeService


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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_for_other_machines(
    host: str, fake: FakeService, closed_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service on this machine is reached without it, unless it is one for gRPC alone."""
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://{closed_port}")
    monkeypatch.setenv("https_proxy", f"http://{closed_port}")
    address = f"{host}:{fake.address.rpartition(':')[2]}"
    with Client(address, retry=NO_RETRY) as client:
        assert client.status().version == "0.0.fake"
    monkeypatch.setenv("grpc_proxy", f"http://{closed_port}")
    with Client(address, retry=NO_RETRY) as client, pytest.raises(Unavailable):
        client.status()
