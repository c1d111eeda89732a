"""Where an actor listens once it knows its node."""

from __future__ import annotations

import pytest

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.process.node_address import at_node


def settings(listen: str, advertise_host: str | None = None) -> DraftSettings:
    """Settings of some actor."""
    return DraftSettings(
        name="d",
        incarnation=1,
        method="prompt_lookup",
        engine=None,
        listen=listen,
        advertise_host=advertise_host,
    )


@pytest.mark.parametrize(
    ("listen", "advertise", "node", "expected"),
    [
        (":0", None, "10.0.0.2", ("10.0.0.2:0", None)),
        (":0", None, "fd00::2", ("[fd00::2]:0", None)),
        ("127.0.0.1:0", None, "10.0.0.2", ("127.0.0.1:0", None)),
        ("0.0.0.0:50051", None, "10.0.0.2", ("0.0.0.0:50051", "10.0.0.2")),
        ("[::]:50051", None, "fd00::2", ("[::]:50051", "fd00::2")),
        ("0.0.0.0:50051", "llm.example", "10.0.0.2", ("0.0.0.0:50051", "llm.example")),
    ],
)
def test_address_of_the_node(
    listen: str, advertise: str | None, node: str, expected: tuple[str, str | None]
) -> None:
    """Nothing is assumed of the node: what is given stays, what is open is filled in."""
    placed = at_node(settings(listen, advertise), node)
    assert (placed.listen, placed.advertise_host) == expected
