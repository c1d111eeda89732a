"""What different kinds of candidates decided, together."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.actors.target.state.passing import Tree, pass_of

from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.verify.walks import Walks, moves_of

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


@pytest.mark.parametrize("keeps", [False, True])
def test_the_text_and_what_is_kept_of_a_walk_stay(keeps: bool) -> None:
    """Of each entry the rows of the text that was read, then those of the first accepted candidates, which stand behind the text."""
    rng = random.Random(1)
    for _ in range(50):
        trees: list[Tree] = []
        kept: list[int] = []
        expected: list[tuple[int, list[int], list[int]]] = []
        walks = Walks.empty(rng.randint(1, 4), 6)
        for entry, row in enumerate(rng.sample(range(9), len(walks.counts_E))):
            chain, path = rng.randint(1, 9), rng.sample(range(5), rng.randint(0, 5))
            trees.append(Tree(row=row, tokens=range(5), parents=range(-1, 4), chain=chain))
            walks.put(entry, Walk(path=tuple(path), tokens=(7, *path)), 0, [])
            kept.append(rng.randint(0, len(path)) if keeps else 0)
            stays = [*range(chain), *(chain + node for node in path[: kept[-1]])]
            expected.append((row, stays, []))
        moves = moves_of(pass_of(trees), walks, np.array(kept))
        assert list(moves) == expected
        assert moves.paths_EP.min() >= -1, "filled up as `Moves` says"
