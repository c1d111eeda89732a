"""Which target gets a prompt that begins as an earlier one did."""

from __future__ import annotations

from outrider.cluster.requests.admission import BLOCK, AdmissionQueue, Grant, PrefixRoutes

CHAT = list(range(4 * BLOCK))


def admission(**slots: int) -> AdmissionQueue:
    """Targets with room."""
    made = AdmissionQueue(max_waiting=64)
    for target, count in slots.items():
        made.set_target(target, count)
    return made


def send(made: AdmissionQueue, request: int, prompt: list[int]) -> Grant:
    """Queues a request of one sequence and lets it go."""
    assert made.enqueue(request, 1, prompt)
    (grant,) = made.grants()
    return grant


def test_beginnings_are_known_in_whole_blocks() -> None:
    """As far as the texts are the same, and only where they went."""
    routes = PrefixRoutes()
    routes.add(1, CHAT)
    routes.sent(1, "a")
    routes.add(2, [*CHAT[: 2 * BLOCK + 5], 9, 9, 9] + [7] * BLOCK)
    assert routes.known(2) == {"a": 2 * BLOCK}
    routes.sent(2, "b")
    routes.add(3, CHAT)
    assert routes.known(3) == {"b": 2 * BLOCK, "a": 4 * BLOCK}
    routes.add(4, [1, *CHAT])
    assert routes.known(4) == {}
    assert routes.known(99) == {}


def test_the_least_recent_blocks_are_forgotten() -> None:
    """Memory has a bound."""
    routes = PrefixRoutes(max_blocks=4)
    routes.add(1, CHAT)
    routes.sent(1, "a")
    routes.add(2, [5] * (2 * BLOCK))
    routes.sent(2, "b")
    assert routes.known(1) == {}, "its first block is gone"
    assert routes.known(2) == {"b": 2 * BLOCK}


def test_a_conversation_returns_to_its_target() -> None:
    """Although another one is as idle; a new text goes where there is most room."""
    made = admission(a=8, b=8)
    first = send(made, 1, CHAT)
    made.release(first)
    again = send(made, 2, [*CHAT, *range(BLOCK)])
    assert again.target == first.target
    other = send(made, 3, [3] * (4 * BLOCK))
    assert other.target != first.target


def test_load_wins_over_knowledge() -> None:
    """A target that is much busier than another gets nothing for knowing the prompt, and a full one cannot."""
    made = admission(a=4, b=4)
    targets = [send(made, request, CHAT).target for request in range(8)]
    assert sorted(targets) == ["a"] * 4 + ["b"] * 4
    assert targets[0] == targets[1], "the second one follows the first"
    assert len(set(targets[:4])) == 2
