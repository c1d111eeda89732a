"""What a target does next is what the plain loop says: which candidates, and whether the pass waits."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from tests.actors.target.candidates.plain_selection import Candidate
from tests.actors.target.schedule.plain_planning import PlainDelay, PlainSession, decide
from tests.actors.target.state.chaos import engine
from tests.actors.target.state.passing import Sessions

from outrider.actors.speculation.learning import Delay
from outrider.actors.speculation.options import Sampling
from outrider.actors.target.next_pass import Planner
from outrider.actors.target.schedule.waiting import SMALLEST_S
from outrider.actors.target.state.passes import Pass

NOW = 10.0
LENGTH = 6
"""Of every text, one of whose tokens has no row yet."""


class Scene:
    """A target in a random state, and the same in plain numbers."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.rng = rng
        made = Sessions(engine(1))
        self.state = state = made.state
        state.settings = replace(state.settings, adaptive=False)
        state.join_drafter("d", takes_turns=False)
        rows = [
            made.open(Sampling(seed=number, max_tokens=64, ignore_eos=True), committed=(1, 2, 3))
            for number in range(rng.randint(1, 3))
        ]
        self.planner = planner = Planner(state)
        table, pools = state.table, state.pools
        row_s = rng.choice([0.0, 1e-5, 2e-4, 2e-3])
        state.cost.set_curve({1: 0.01, 101: 0.01 + 100 * row_s})
        planner.start.waiting.first = Delay(rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.005))
        planner.start.waiting.next = Delay(rng.uniform(0.0, 0.002), rng.uniform(0.0, 0.0005))
        planner.start.waiting.last_s = NOW - rng.uniform(0.0, 0.001)
        planner.start.waiting.promised_s = rng.choice([0.0, 0.0, NOW - 0.003, NOW + 0.003])
        planner.start.last_nodes = rng.randint(0, 6)
        planner.start.rows_s = rng.choice([0.0, rng.uniform(0.0, 0.01)])
        table.started_S[rows] = True
        table.cached_S[rows] = LENGTH - 1
        table.joined_SD[rows, state.number_of("d")] = True
        self.sessions: list[PlainSession] = []
        all_answered = rng.random() < 0.4
        place = 0
        for number, row in enumerate(rows):
            heard = LENGTH if all_answered else rng.randint(LENGTH - 3, LENGTH)
            said = {LENGTH - back: NOW - 0.001 - 0.01 * back * rng.random() for back in range(3)}
            said = dict(zip(sorted(said), sorted(said.values()), strict=True))
            table.heard_S[row] = heard
            table.said_s_SL[row] = 0.0
            for length, when in said.items():
                table.said_s_SL[row, length] = when
            table.yields_S[row] = rng.uniform(1.0, 1.5 if all_answered else 5.0)
            table.hits_S[row] = rng.uniform(0.5 if all_answered else 0.0, 1.0)
            table.answered_S[row] = all_answered or rng.random() < 0.5
            table.grows_S[row] = rng.random() < 0.7
            table.max_nodes_S[row] = rng.randint(1, 6)
            table.max_depth_S[row] = rng.randint(1, 4)
            own = self._candidates(number, place, rng.randint(1 if all_answered else 0, 4))
            for column, one in enumerate(own):
                pools.parents_SP[row, column] = one.parent - place if one.parent >= 0 else -1
                pools.values_SP[row, column] = one.value
                pools.depths_SP[row, column] = LENGTH + one.depth
                pools.tokens_SP[row, column] = column
                pools.sizes_S[row] += 1
            self.sessions.append(
                PlainSession(
                    length=LENGTH,
                    heard=heard,
                    said=said,
                    tokens=float(table.yields_S[row]),
                    hit=float(table.hits_S[row]),
                    answered=bool(table.answered_S[row]),
                    grows=bool(table.grows_S[row]),
                    most_nodes=int(table.max_nodes_S[row]),
                    deepest=int(table.max_depth_S[row]),
                    candidates=own,
                    first_place=place,
                )
            )
            place += len(own)
        self.rows = rows

    def _candidates(self, session: int, first: int, size: int) -> list[Candidate]:
        found: list[Candidate] = []
        for _ in range(size):
            parent = self.rng.choice([-1, *range(len(found))])
            above, depth = (found[parent].value, found[parent].depth) if parent >= 0 else (1.0, 0)
            value = above * self.rng.uniform(0.05, 0.999)
            found.append(
                Candidate(session, parent + first if parent >= 0 else -1, value, depth + 1)
            )
        return found

    def plain(self) -> tuple[float, frozenset[int]]:
        """As the plain loop decides."""
        waiting, settings = self.planner.start.waiting, self.state.settings
        (part,) = [
            store.choose(
                np.array(self.rows),
                num_rows=len(self.rows),
                num_nodes=0,
                tokens=float(len(self.rows)),
            )
            for store in self.state.stores[:1]
        ]
        return decide(
            self.sessions,
            now=NOW,
            seconds=self.state.cost.predict,
            floor=part.floor,
            last_nodes=self.planner.start.last_nodes,
            rows_s=self.planner.start.rows_s,
            most_nodes=settings.max_batch_nodes,
            first=PlainDelay(mean_s=waiting.first.mean_s, spread_s=waiting.first.spread_s),
            following=PlainDelay(mean_s=waiting.next.mean_s, spread_s=waiting.next.spread_s),
            last_arrival=waiting.last_s,
            promised=waiting.promised_s,
            patience_s=settings.max_patience_s,
            smallest_s=SMALLEST_S,
        )


def told(scene: Scene, plan: Pass) -> frozenset[int]:
    """Places of the candidates of a pass."""
    places = []
    for entry, row in enumerate(plan.rows_E.tolist()):
        first = scene.sessions[scene.rows.index(row)].first_place
        for node in range(int(plan.starts_E[entry]), int(plan.starts_E[entry + 1])):
            places.append(first + int(plan.columns_N[node]))
    return frozenset(places)


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_the_planner_decides_as_the_plain_loop(start: int) -> None:
    """Over random states: candidates, texts that were and were not answered, dear and free rows, late and early drafters."""
    for seed in range(start, start + 100):
        scene = Scene(seed)
        wait_s, chosen = scene.plain()
        decided = scene.planner.plan(NOW)
        if isinstance(decided, Pass):
            assert wait_s == 0.0, seed
            assert told(scene, decided) == chosen, seed
        else:
            assert decided == pytest.approx(wait_s, rel=1e-9), seed


def test_both_ways_are_met() -> None:
    """Half of the states are of no use to such a test if none of them waits, or none begins."""
    scenes = [Scene(seed) for seed in range(300)]
    waits = [scene.plain()[0] > 0.0 for scene in scenes]
    grows = [
        wait
        for wait, scene in zip(waits, scenes, strict=True)
        if all(one.candidates and one.answered for one in scene.sessions)
    ]
    for found in (waits, grows):
        assert 0.1 < sum(found) / len(found) < 0.9
    assert not math.isnan(scenes[0].plain()[0])
