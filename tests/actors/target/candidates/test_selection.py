"""Which candidates a pass takes: of all that could be taken, those that commit most tokens in a second."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.actors.target.candidates.plain_selection import Candidate, best_subset

from outrider.actors.target.candidates.candidate_pools import Pools
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.schedule.cost import CostModel
from outrider.actors.target.schedule.selection import select

LENGTH = 7
"""Of every text."""

FREE = {1: 0.01, 100: 0.01}
DEAR = {1: 0.01, 100: 1.0}


def cost_of(curve: dict[int, float]) -> CostModel:
    """A cost model that was warmed up."""
    cost = CostModel()
    cost.set_curve(curve)
    return cost


def random_candidates(rng: random.Random, num_sessions: int, size: int) -> list[Candidate]:
    """Trees of some sessions; no two paths are as probable."""
    found: list[Candidate] = []
    for _ in range(size):
        session = rng.randrange(num_sessions)
        own = [place for place, one in enumerate(found) if one.session == session]
        parent = rng.choice([-1, *own])
        above, depth = (found[parent].value, found[parent].depth) if parent >= 0 else (1.0, 0)
        found.append(Candidate(session, parent, above * rng.uniform(0.05, 0.999), depth + 1))
    return found


def pools_of(candidates: list[Candidate], num_sessions: int) -> tuple[Pools, list[tuple[int, int]]]:
    """The pools that hold them, and the session and column of each."""
    pools, places = Pools(num_sessions, 32), list[tuple[int, int]]()
    for one in candidates:
        row, column = one.session, int(pools.sizes_S[one.session])
        places.append((row, column))
        pools.parents_SP[row, column] = places[one.parent][1] if one.parent >= 0 else -1
        pools.values_SP[row, column] = one.value
        pools.depths_SP[row, column] = LENGTH + one.depth
        pools.sizes_S[row] += 1
    return pools, places


def choose(
    pools: Pools,
    num_sessions: int,
    cost: CostModel,
    *,
    max_depths: list[int] | None = None,
    budgets: list[int] | None = None,
    max_nodes: int = 64,
    num_rows: int | None = None,
) -> Chosen:
    """Chooses."""
    return select(
        pools,
        np.arange(num_sessions),
        deepest_E=LENGTH + np.array(max_depths or [32] * num_sessions),
        budgets_E=np.array(budgets or [32] * num_sessions),
        num_rows=num_sessions if num_rows is None else num_rows,
        max_nodes=max_nodes,
        cost=cost,
    )


@pytest.mark.parametrize("seed", range(120))
def test_no_other_choice_commits_more_in_a_second(seed: int) -> None:
    """Trees, limits and curves of any shape: steps, slopes and flat parts."""
    rng = random.Random(seed)
    num_sessions = rng.randint(1, 3)
    candidates = random_candidates(rng, num_sessions, rng.randint(0, 9))
    pools, places = pools_of(candidates, num_sessions)
    curve, seconds = dict[int, float](), 0.01
    for rows in sorted(rng.sample(range(1, 16), 4)):
        seconds += rng.choice([0.0, 0.001, 0.02]) * rng.random()
        curve[rows] = seconds
    cost = cost_of(curve)
    max_depths = [rng.randint(1, 4) for _ in range(num_sessions)]
    budgets = [rng.randint(0, 5) for _ in range(num_sessions)]
    max_nodes, num_rows = rng.randint(1, 9), num_sessions + rng.randint(0, 3)
    chosen = choose(
        pools,
        num_sessions,
        cost,
        max_depths=max_depths,
        budgets=budgets,
        max_nodes=max_nodes,
        num_rows=num_rows,
    )
    best, rate = best_subset(
        candidates,
        num_sessions=num_sessions,
        max_depths=max_depths,
        budgets=budgets,
        max_nodes=max_nodes,
        seconds=lambda nodes: cost.predict(num_rows + nodes),
    )
    taken = list(zip(chosen.entries_N.tolist(), chosen.columns_N.tolist(), strict=True))
    assert {places.index(one) for one in taken} == best
    assert chosen.tokens / cost.predict(num_rows + len(taken)) == pytest.approx(rate)
    assert taken == sorted(taken), "a session's candidates stand together, parents first"
    assert 0.0 <= chosen.floor <= 1.0


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5]])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_ties_leave_no_orphans(values: list[float], limit: int) -> None:
    """Of a chain whose nodes are worth the same, its beginning is taken."""
    chain = [Candidate(0, place - 1, value, place + 1) for place, value in enumerate(values)]
    pools, _ = pools_of(chain, 1)
    for chosen in (
        choose(pools, 1, cost_of(FREE), max_nodes=limit),
        choose(pools, 1, cost_of(FREE), budgets=[limit]),
        choose(pools, 1, cost_of(FREE), max_depths=[limit]),
    ):
        assert chosen.columns_N.tolist() == list(range(limit))


def test_rows_that_cost_nothing_are_all_taken_and_need_no_worth() -> None:
    """Deep trees while the target has nothing else to do."""
    pools, _ = pools_of(random_candidates(random.Random(1), 1, 20), 1)
    chosen = choose(pools, 1, cost_of(FREE))
    assert len(chosen.columns_N) == 20
    assert chosen.floor == 0.0


def test_dear_rows_take_only_what_pays() -> None:
    """A row costs as much time as a token: then nothing is taken, and drafters hear that nothing is worth it."""
    pools, _ = pools_of([Candidate(0, -1, 0.9, 1)], 1)
    chosen = choose(pools, 1, cost_of(DEAR))
    assert len(chosen.columns_N) == 0
    assert chosen.tokens == 1.0
    assert chosen.floor == pytest.approx(1.0)


def test_the_floor_is_the_price_of_the_rows_that_were_taken() -> None:
    """Behind a bend of the curve rows cost a hundred times as much. None is taken there; what is worth a row before it is worth one."""
    pools, _ = pools_of([Candidate(0, -1, 0.04, token) for token in range(20)], 1)
    chosen = choose(pools, 1, cost_of({1: 1.0, 11: 1.01, 21: 2.01}))
    assert len(chosen.columns_N) == 10
    assert chosen.floor == pytest.approx(1.4 / 1.01 * 0.001)


def test_empty_pools() -> None:
    """A plain pass."""
    chosen = choose(Pools(2, 8), 2, cost_of(DEAR))
    assert (len(chosen.columns_N), chosen.tokens) == (0, 2.0)
