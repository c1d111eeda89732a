"""Which candidates a pass takes."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from tests.actors.target.test_plan import flat
from tests.actors.target.test_plan import session as make_session

from outrider.actors.speculation.options import Speculation
from outrider.actors.target.choice import INDIFFERENCE, choose_candidates
from outrider.actors.target.cost import CostModel
from outrider.actors.target.session import Session


def offering(handle: int, rng: random.Random) -> Session:
    """A session with a random tree, some of whose values are those of others, and limits of its own."""
    speculation = Speculation(max_nodes=rng.choice((1, 4, 16)), max_depth=rng.choice((1, 3, 8)))
    made = make_session(handle, max_tokens=rng.choice((1, 3, 50)), speculation=speculation)
    count = rng.randrange(25)
    made.pool.graft(
        [rng.randrange(8) for _ in range(count)],
        [rng.randint(0, place) for place in range(count)],
        [rng.choice((1.0, 0.5, 0.1, rng.random())) for _ in range(count)],
        0,
        (),
        lambda stated: stated,
    )
    return made


def most_values(
    sessions: list[Session], num_rows: int, max_nodes: int, cost: CostModel
) -> list[list[float]]:
    """What is to be taken of each, found by looking at everything that all of them offer."""
    offers = [
        one.pool.select(
            min(one.speculation.max_nodes, max_nodes),
            min(one.speculation.max_depth, one.remaining - 1),
        ).values
        if one.remaining > 1
        else []
        for one in sessions
    ]
    plain_rate = best_rate = len(sessions) / cost.predict(num_rows)
    tokens, floor = float(len(sessions)), 2.0
    offered = sorted((value for values in offers for value in values), reverse=True)
    for count, value in enumerate(offered[:max_nodes], start=1):
        tokens += value
        rate = tokens / cost.predict(num_rows + count)
        if rate >= max(INDIFFERENCE * best_rate, plain_rate):
            best_rate, floor = max(rate, best_rate), value
    taken: list[list[float]] = []
    for values in offers:
        worthy = [value for value in values if value >= floor]
        taken.append(worthy[:max_nodes])
        max_nodes -= len(taken[-1])
    return taken


@given(
    seed=st.integers(0, 10**6),
    num_sessions=st.integers(1, 12),
    max_nodes=st.sampled_from((0, 1, 7, 40, 256)),
    rows_per_s=st.sampled_from((50.0, 400.0, 3000.0, 1e9)),
)
def test_looking_no_further_than_needed_changes_no_choice(
    seed: int, num_sessions: int, max_nodes: int, rows_per_s: float
) -> None:
    """The same candidates as if all that is offered had been sorted, whatever rows cost, ties included."""
    rng = random.Random(seed)
    sessions = [offering(handle, rng) for handle in range(num_sessions)]
    holders = [place for place, one in enumerate(sessions) if one.has_candidates]
    cost = flat(rows_per_s)
    chosen = choose_candidates(sessions, holders, num_sessions, max_nodes, cost)
    assert list(chosen) == sorted(chosen)
    found = [chosen[place].values if place in chosen else [] for place in range(num_sessions)]
    assert found == most_values(sessions, num_sessions, max_nodes, cost)


@given(rounds=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=5), max_size=6))
def test_what_a_session_keeps_of_its_text_follows_it(rounds: list[list[int]]) -> None:
    """Length, hash and the tokens that are left are what its tokens say."""
    made = make_session(1, length=3, max_tokens=40)
    for tokens in rounds:
        made.commit(tokens, 0.0)
    output = sum(map(len, rounds))
    assert made.length == len(made.tokens) == 3 + output
    assert (made.num_output, made.remaining) == (output, 40 - output)
    assert made.hash == made.hash_at(made.length)
    assert made.hash_at(made.length + 1) is None
