"""Drafting from what followed before: the counts, the tree, what is remembered, and what sessions get of it."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from tests.actors.draft.bench import make_attach
from tests.actors.draft.text.text_bench import TextBench, chain_of

from outrider.actors.draft.state.draft_events import Resynced
from outrider.actors.draft.text.continuations import GrowthBounds, children_in, grow
from outrider.actors.draft.text.counted_law import PRIORS, CountedLaw
from outrider.actors.draft.text.occurrences import followers, matches, places_after
from outrider.actors.draft.text.output_memory import OutputMemory
from outrider.actors.speculation.noise.token_noise import token_noise
from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.trees import base_hash

GREEDY = CountedLaw(Sampling(seed=1, max_tokens=9, temperature=0.0), "coupled")
TEXT = [1, 2, *range(40, 60), 1, 2]


def naive(texts: list[list[int]], run: list[int]) -> Counter[int]:
    """How often each token followed a run of tokens in some texts, by searching."""
    return Counter(
        text[end]
        for text in texts
        for end in range(len(run), len(text))
        if text[end - len(run) : end] == run
    )


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_substrings(seed: int) -> None:
    """After texts were added and forgotten at random, for every length at which the tail stood before."""
    generator = random.Random(seed)
    memory = OutputMemory(90)
    for _ in range(40):
        memory.add(np.array([generator.randrange(3) for _ in range(generator.randint(1, 30))]))
        assert memory.num_tokens <= 90
        kept = [text_T.tolist() for text_T in memory.texts.values()]
        tail = [generator.randrange(3) for _ in range(8)]
        found = dict(matches(memory.texts, memory.places_after(tail), tail, longest=6))
        for length in range(2, 7):
            # Lengths that no fewer places match than the next longer one are told by that one.
            longer = [found[one] for one in sorted(found) if one >= length]
            places = longer[0] if longer else []
            counted = {t: len(p) for t, p in followers(memory.texts, places).items()}
            assert counted == naive(kept, tail[-length:])


def test_a_text_counts_within_itself() -> None:
    """Every earlier occurrence, overlapping ones too, but not the end itself."""
    text_T = np.array([1, 1, 1, 2, 1, 1, 2, 1, 1])
    places = places_after(text_T, [1, 1])
    counted = {t: len(p) for t, p in followers({0: text_T}, places).items()}
    assert counted == naive([text_T.tolist()], [1, 1]) == {1: 1, 2: 2}


def test_memory_is_bounded_and_forgets_the_oldest_first() -> None:
    """Of what is too long, the end stays; what is too short for a match is not kept."""
    memory = OutputMemory(10)
    for first in (1, 11, 21):
        memory.add(np.arange(first, first + 4))
        assert memory.num_tokens <= 10
    memory.add(np.array([5, 6]))
    assert [text_T.tolist() for text_T in memory.texts.values()] == [
        [11, 12, 13, 14],
        [21, 22, 23, 24],
    ]
    assert memory.places_after([1, 2]) == []
    memory.add(np.arange(100))
    assert [text_T.tolist() for text_T in memory.texts.values()] == [list(range(90, 100))]


def test_the_score_is_the_sum_of_path_probabilities() -> None:
    """And the tree holds the paths of greatest probability, as many as there may be."""
    texts = {0: np.array([1, 2, 5, 1, 3, 5, 1, 2, 6])}
    # The same rate for every kind: a path's probability is 1/2 for each of its nodes.
    grown = grow(
        places_after(texts[0], [1]),
        children_in(texts),
        match=1,
        position=9,
        law=GREEDY,
        rates=[0.5] * len(PRIORS),
        bounds=GrowthBounds(depth=2, nodes=9, width=4),
    )
    proposal = grown.proposal
    values: list[float] = []
    for parent in proposal.parents:
        values.append(0.5 * (1.0 if parent < 0 else values[parent]))
    assert grown.score == pytest.approx(sum(values)) == pytest.approx(2 * 0.5 + 3 * 0.25)
    assert values == sorted(values, reverse=True)
    paths = [
        (token,) if parent < 0 else (proposal.tokens[parent], token)
        for token, parent in zip(proposal.tokens, proposal.parents, strict=True)
    ]
    # 2 was said twice, 3 once; the newest continuation of equal counts comes first.
    assert paths == [(2,), (3,), (2, 6), (2, 5), (3, 5)]


def test_with_shared_noise_likely_draws_come_first() -> None:
    """Counts as a law: candidates are ranked by the logarithm of their smoothed frequency plus the target's own noise."""
    sampling = Sampling(seed=77, max_tokens=9, temperature=0.8)
    coupled, blind = CountedLaw(sampling, "coupled"), CountedLaw(sampling, "exact_match")
    counts = [(5, 2), (6, 2), (7, 1)]
    orders = set()
    for position in range(40):
        ranked = [one.token for one in coupled.ranked(counts, position)]
        scores = {
            token: np.log((count + 0.5) / 6) + token_noise(77, position, token)
            for token, count in counts
        }
        assert ranked == sorted(scores, key=lambda token: -scores[token])
        orders.add(tuple(ranked))
        assert [one.token for one in blind.ranked(counts, position)] == [5, 6, 7]
    assert len(orders) > 3


def test_what_the_noise_says_is_worth_is_right() -> None:
    """If counts are the law, the chance of a single candidate is that of its being the target's draw."""
    law = CountedLaw(Sampling(seed=5, max_tokens=9, temperature=1.0), "coupled")
    expected = happened = 0.0
    for position in range(3000):
        [one] = law.ranked([(0, 1)], position)
        # The target's law: 1/3 for the token that was seen, the rest for two others.
        draws = [token_noise(5, position, token) for token in range(3)]
        expected += one.chance
        happened += draws[0] > max(draws[1:])
    assert expected / 3000 == pytest.approx(happened / 3000, abs=0.02)


@pytest.mark.parametrize("method", ["suffix", "prompt_lookup"])
def test_what_followed_before_is_proposed(method: str) -> None:
    """The most recent continuation as a path as long as two target passes, an older one beside it."""
    bench = TextBench(method)
    key = bench.attach([1, 2, 30, 31, 32, 1, 2, 40, 41, 42, 43, 44, 45, 46, 1, 2])
    tree = bench.tree(key)
    assert chain_of(tree)[:4] == [40, 41, 42, 43]
    first, second = tree.children(-1)
    assert (tree.tokens[first], tree.tokens[second]) == (40, 30)
    assert tree.estimates[first] > tree.estimates[second]


def test_the_longer_match_counts_more() -> None:
    """What followed three equal words is preferred to what followed two of them later."""
    bench = TextBench("prompt_lookup")
    key = bench.attach([9, 1, 2, 70, 71, 8, 1, 2, 80, 81, 9, 1, 2])
    assert chain_of(bench.tree(key))[:2] == [70, 71]


def test_accepted_paths_go_on() -> None:
    """After a verdict along the path, what is left of it stays and is continued; what was sent is not sent again."""
    bench = TextBench("prompt_lookup")
    key = bench.attach(TEXT)
    sent = [token for news in bench.take_news() for token in news.tokens]
    bench.commit(key, sent[:3])
    bench.settle()
    assert chain_of(bench.tree(key)) == [43, 44, 45, 46, 47, 48]
    [news] = bench.take_news()
    assert news.tokens[-1] == 48
    assert not set(news.tokens) & {40, 41, 42}


def test_proposals_are_bounded() -> None:
    """By the tokens that remain, by the nodes allowed ahead, and by the option."""
    bench = TextBench("prompt_lookup", max_ahead=4)
    assert chain_of(bench.tree(bench.attach(TEXT, handle=1, max_tokens=2))) == [40, 41]
    assert len(bench.tree(bench.attach(TEXT, handle=2, max_depth=30)).tokens) == 4
    bench = TextBench("prompt_lookup", options={"max_nodes": 3})
    assert len(bench.tree(bench.attach(TEXT, max_depth=30)).tokens) == 3


def test_a_replaced_text_is_looked_at_anew() -> None:
    """After a resync nothing of the wrong text is proposed."""
    bench = TextBench("prompt_lookup")
    key = bench.attach([1, 2, 77, 78, 1, 2])
    text = [1, 2, 88, 89, 1, 2]
    bench.worker.post(
        Resynced(
            key=key,
            epoch=1,
            length=len(text),
            hash=base_hash.extend_all(base_hash.EMPTY, text),
            tokens=tuple(text),
            credits=64,
        )
    )
    bench.settle()
    assert chain_of(bench.tree(key))[:2] == [88, 89]


def test_estimates_follow_the_matches() -> None:
    """Where copies go on as before, long matches become nearly certain."""
    bench = TextBench("prompt_lookup")
    key = bench.attach(list(range(20)) * 2)
    for _ in range(120):
        bench.commit(key, ((bench.text(key)[-1] + 1) % 20,))
        bench.settle()
    assert bench.tree(key).estimates[0] > 0.9


def test_every_slot_is_counted() -> None:
    """A session beyond the configured number is refused until another leaves."""
    bench = TextBench("prompt_lookup", num_slots=1)
    bench.attach([1, 2], handle=1)
    bench.worker.post(make_attach(handle=2))
    bench.settle()
    [refused] = bench.take_refused()
    assert "num_slots" in refused.message
    assert bench.worker.num_free_slots == 0


PROMPT = [3, 1, 4, 1, 5]
OUTPUT = random.Random(2).sample(range(100, 400), 60)
"""Without a repetition, so that its own text says nothing of it."""


@pytest.mark.parametrize(("method", "helps"), [("suffix", True), ("prompt_lookup", False)])
def test_a_second_request_of_the_same_text_is_faster(method: str, helps: bool) -> None:
    """What one session said is proposed to the next, by the method that remembers."""
    bench = TextBench(method, max_ahead=32)
    passes = []
    for handle in (1, 2):
        key = bench.attach(PROMPT, handle=handle)
        passes.append(bench.decode(key, OUTPUT))
        bench.leave(key)
    assert passes[0] == len(OUTPUT)
    assert (passes[1] < 0.5 * len(OUTPUT)) == helps


@pytest.mark.parametrize(
    ("options", "tokenizer"), [({"memory_tokens": 0}, "a"), ({"memory_tokens": 50}, "a"), ({}, "b")]
)
def test_what_is_not_remembered(options: dict[str, int], tokenizer: str) -> None:
    """Nothing without memory, nothing that fell out of it, and nothing of another tokenizer."""
    bench = TextBench("suffix", options=options)
    for handle, output in ((1, OUTPUT), (2, list(range(500, 560)))):
        key = bench.attach(PROMPT, handle=handle, tokenizer="a")
        bench.decode(key, output)
        bench.leave(key)
    key = bench.attach(PROMPT, handle=3, tokenizer=tokenizer)
    assert bench.decode(key, OUTPUT) == len(OUTPUT)


def test_prompts_are_not_remembered() -> None:
    """Only what the service said; but that is known from its first token on, where the end of a prompt is the same."""
    bench = TextBench("suffix")
    key = bench.attach(OUTPUT, handle=1)
    bench.commit(key, [7, 8])
    bench.leave(key)
    assert not bench.tree(bench.attach(OUTPUT[:10], handle=2)).tokens
    assert not bench.tree(bench.attach(OUTPUT[-10:-1], handle=3)).tokens
    assert chain_of(bench.tree(bench.attach(OUTPUT[-10:], handle=4))) == [7, 8]


def test_nothing_of_one_client_is_proposed_to_another() -> None:
    """Who asks again is answered from memory, who did not ask before is not, though the text is the same."""
    bench = TextBench("suffix")
    passes = {}
    for handle, tenant in enumerate((7, 8, 7, 0), start=1):
        key = bench.attach(PROMPT, handle=handle, tenant=tenant)
        passes[handle] = bench.decode(key, OUTPUT)
        bench.leave(key)
    assert (passes[1], passes[2], passes[4]) == (len(OUTPUT),) * 3
    assert passes[3] < 0.5 * len(OUTPUT)


def test_memory_is_bounded_over_all_clients() -> None:
    """Who was served longest ago is forgotten."""
    bench = TextBench("suffix", options={"memory_tokens": 150})
    for handle, tenant in enumerate((1, 2, 3, 4), start=1):
        key = bench.attach(PROMPT, handle=handle, tenant=tenant)
        bench.decode(key, OUTPUT)
        bench.leave(key)
    first, last = (bench.attach(PROMPT, handle=10 + tenant, tenant=tenant) for tenant in (1, 4))
    assert bench.decode(first, OUTPUT) == len(OUTPUT)
    assert bench.decode(last, OUTPUT) < 0.5 * len(OUTPUT)


def test_a_session_that_runs_knows_what_is_remembered_and_no_more() -> None:
    """Not what its client's memory was when it began: that may be forgotten, and filled again."""
    bench = TextBench("suffix", options={"memory_tokens": 150})
    later = list(range(500, 560))
    running = [bench.attach(PROMPT, handle=handle, tenant=1) for handle in (1, 2)]
    for handle, (tenant, said) in enumerate(
        ((1, OUTPUT), (2, later), (3, later), (4, later), (1, later)), start=10
    ):
        key = bench.attach(PROMPT, handle=handle, tenant=tenant)
        bench.decode(key, said)
        bench.leave(key)
    assert bench.decode(running[0], OUTPUT) == len(OUTPUT)
    assert bench.decode(running[1], later) < 0.5 * len(later)
