"""Which start of a peer is the living one. Hellos over real streams are in the tests of each server."""

from __future__ import annotations

from outrider.actors.rpc.hello import PeerIncarnations


def test_earlier_starts_are_dead() -> None:
    """Once a later start has connected, an earlier one is refused; the same one may come again."""
    incarnations = PeerIncarnations()
    assert incarnations.refusal("d", 5) is None
    assert incarnations.refusal("d", 5) is None
    assert incarnations.refusal("d", 6) is None
    assert "dead" in (incarnations.refusal("d", 5) or "")
    assert incarnations.refusal("e", 1) is None
