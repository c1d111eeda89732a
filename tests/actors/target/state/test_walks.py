"""What different kinds of candidates decided, together."""

from __future__ import annotations

import random

import pytest

from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.verify.walks import Walks

Decided = tuple[Walk, int, list[Logprob]]


def read(walks: Walks, entry: int) -> Decided:
    """What was noted of an entry; nothing may stand behind it."""
    count = int(walks.counts_E[entry])
    tokens, nodes = walks.tokens_ET[entry].tolist(), walks.nodes_ET[entry].tolist()
    assert set(nodes[max(count - 1, 0) :]) <= {-1}
    walk = Walk(path=tuple(nodes[: max(count - 1, 0)]), tokens=tuple(tokens[:count]))
    return walk, int(walks.near_ties_E[entry]), walks.logprobs.get(entry, [])


@pytest.mark.parametrize("num_parts", [0, 1, 2, 3])
def test_walks_of_different_entries_are_united(num_parts: int) -> None:
    """Nothing is lost and nothing is mixed up, however long the walks of each are; an entry that drew nothing has none."""
    rng = random.Random(num_parts)
    for _ in range(20):
        parts = [Walks.empty(6, rng.randint(1, 5)) for _ in range(num_parts)]
        expected: dict[int, Decided] = dict.fromkeys(range(6), (Walk(path=(), tokens=()), 0, []))
        for entry in rng.sample(range(6), rng.randint(0, 6) if parts else 0):
            part = rng.choice(parts)
            count = rng.randint(1, part.tokens_ET.shape[1])
            tokens = tuple(rng.randrange(1, 9) for _ in range(count))
            walk = Walk(path=tuple(rng.randrange(9) for _ in tokens[1:]), tokens=tokens)
            reports = [Logprob(chosen=-1.0 * t, top_ids=(), top=()) for t in tokens]
            expected[entry] = walk, rng.randint(0, 2), rng.choice([[], reports])
            part.put(entry, *expected[entry])
        whole = Walks.united(6, rng.sample([*parts, None], num_parts + 1))
        assert {entry: read(whole, entry) for entry in range(6)} == expected
