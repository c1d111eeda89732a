"""Drafting sequences of one request from each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.actors.draft.text.text_bench import TextBench, chain_of

from outrider.actors.draft.text.lattice import Lattice
from outrider.actors.draft.text.occurrences import place_of

PROMPT = [1, 2, 3]
GROUP = 17
SAID = list(range(50, 70))


def weights_of(continuations: list[tuple[int, ...]]) -> dict[tuple[int, int, int], int]:
    """The definition: how many continuations have u in a layer and v in the next one."""
    weights: dict[tuple[int, int, int], int] = {}
    for one in continuations:
        for layer, (u, v) in enumerate(itertools.pairwise(one)):
            weights[layer, u, v] = weights.get((layer, u, v), 0) + 1
    return weights


def test_edges_weigh_what_continuations_share() -> None:
    """Every set of up to three continuations of two tokens, three long at most: each edge that is found has the weight of its definition."""
    words = [word for size in (1, 2, 3) for word in itertools.product((4, 5), repeat=size)]
    for size in (1, 2, 3):
        for chosen in itertools.combinations_with_replacement(words, size):
            texts = {number: np.array([9, *word]) for number, word in enumerate(chosen)}
            graph = Lattice(texts, [place_of(number, 1) for number in texts])
            found: dict[tuple[int, int, int], int] = {}
            layer = graph.children(0, [place_of(number, 1) for number in texts])
            firsts = {token: weight for token, (weight, _) in layer.items()}
            assert firsts == {u: sum(word[0] == u for word in chosen) for u in firsts}
            for depth in (1, 2):
                below = {u: graph.children(depth, places) for u, (_, places) in layer.items()}
                for u, edges in below.items():
                    found |= {(depth - 1, u, v): weight for v, (weight, _) in edges.items()}
                layer = {v: edge for edges in below.values() for v, edge in edges.items()}
            assert found == weights_of(list(chosen))


def test_continuations_that_meet_again_count_together() -> None:
    """Two siblings differ in one token and agree after it; the path through the one is as well supported as that through the other."""
    bench = TextBench("consensus")
    for handle, middle in ((1, 60), (2, 61)):
        key = bench.attach(PROMPT, handle=handle, group=GROUP)
        bench.commit(key, [50, 51, middle, 70, 71])
    key = bench.attach(PROMPT, handle=3, group=GROUP)
    tree = bench.tree(key)
    assert chain_of(tree)[:2] == [50, 51]
    both = [node for node, token in enumerate(tree.tokens) if token in (60, 61)]
    behind = [[tree.tokens[child] for child in tree.children(node)] for node in both]
    assert behind == [[70], [70]]


def test_a_sequence_says_what_its_sibling_said() -> None:
    """While that runs, and after it has ended; another request's sequence gets nothing of it."""
    bench = TextBench("consensus")
    first = bench.attach(PROMPT, handle=1, group=GROUP)
    assert not bench.tree(first).tokens
    bench.commit(first, SAID[:4])
    second = bench.attach(PROMPT, handle=2, group=GROUP)
    assert chain_of(bench.tree(second)) == SAID[:4]
    bench.commit(first, SAID[4:])
    bench.leave(first)
    bench.commit(second, SAID[:6])
    bench.settle()
    assert chain_of(bench.tree(second)) == SAID[6:12]
    bench.leave(second)
    # It waited for a slot until all others had ended.
    late = bench.attach(PROMPT, handle=3, group=GROUP)
    assert chain_of(bench.tree(late))[:4] == SAID[:4]
    assert not bench.tree(bench.attach(PROMPT, handle=4, group=GROUP + 1)).tokens


def test_more_siblings_draft_better() -> None:
    """What most of them said is surer than what one said."""
    estimates = []
    for others in (1, 6):
        bench = TextBench("consensus")
        for handle in range(others):
            key = bench.attach(PROMPT, handle=handle, group=GROUP)
            bench.commit(key, SAID)
        estimates.append(bench.tree(bench.attach(PROMPT, handle=99, group=GROUP)).estimates[0])
    assert estimates[1] > estimates[0]


def test_one_sequence_alone_gets_nothing_and_runs_on() -> None:
    """For n = 1 nothing is proposed, whatever the text repeats."""
    bench = TextBench("consensus")
    key = bench.attach(PROMPT * 3)
    assert bench.decode(key, PROMPT * 4) == 12
    assert not bench.tree(key).tokens
    bench.leave(key)
    assert bench.worker.num_free_slots == bench.worker.num_slots


def test_the_prompt_is_no_continuation() -> None:
    """It is the same for all siblings: what they said counts, also just behind it."""
    bench = TextBench("consensus")
    prompt = [7, 8, 9, 7, 8]
    bench.commit(bench.attach(prompt, handle=1, group=GROUP), [30, 31])
    tree = bench.tree(bench.attach(prompt, handle=2, group=GROUP))
    assert [tree.tokens[node] for node in tree.children(-1)] == [30]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"least_match": 9}, "least_match is 9; it must be 1 to 8"),
        ({"longest_match": 65}, "longest_match is 65"),
        ({"most_continuations": 0}, "most_continuations is 0"),
    ],
)
def test_options_are_bounded(options: dict[str, int], problem: str) -> None:
    """What makes no sense is refused with what would."""
    with pytest.raises(ValueError, match=problem):
        TextBench("consensus", options=options)
