"""Round trips to other nodes."""

from __future__ import annotations

import math
import socket

from outrider.cluster.placement.distance import round_trips


def test_who_answers_has_a_distance_and_who_does_not_has_none() -> None:
    """In the order in which they were asked for."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as there, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, and nobody listens
        refused, answered = closed.getsockname(), there.getsockname()
        found = round_trips([refused, answered, refused])
    assert [math.isfinite(seconds) for seconds in found] == [False, True, False]
    assert found[1] > 0.0
