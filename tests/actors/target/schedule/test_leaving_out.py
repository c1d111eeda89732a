"""Who goes along in a pass where candidates fit one text only is what the plain loop says, and how long the pass waits for the others."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.actors.target.candidates.test_frozen_pool import tree
from tests.actors.target.schedule.plain_planning import PlainDelay, PlainLoner, who_goes
from tests.actors.target.state.chaos import engine
from tests.actors.target.state.passing import Sessions

from outrider.actors.exchange.candidates import FROZEN
from outrider.actors.frozen.frozen_candidates import FrozenBatch, FrozenCandidates
from outrider.actors.speculation.learning import Delay
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees.level_shapes import parse
from outrider.actors.target.next_pass import Planner
from outrider.actors.target.schedule.waiting import SMALLEST_S
from outrider.actors.target.state import yields
from outrider.actors.target.state.passes import Pass

NOW = 10.0
SHAPES = {"speculative_sampling": "1,1,1,1", "specinfer": "2,2"}


class Scene:
    """A target in a random state whose sessions test frozen trees, and the same in plain numbers."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        made = Sessions(engine(1))
        self.state = state = made.state
        state.settings = replace(
            state.settings, adaptive=False, max_patience_s=rng.choice([0.02, 1.0])
        )
        state.join_drafter("d", takes_turns=False)
        self.planner = planner = Planner(state)
        state.cost.set_curve({1: 0.01, 101: 0.01 + 100 * rng.choice([0.0, 2e-4])})
        first = Delay(rng.uniform(0.0, 0.03), rng.uniform(0.0, 0.005))
        planner.start.waiting.first = first
        planner.start.last_nodes = rng.randint(0, 6)
        number, table = state.number_of("d"), state.table
        self.is_reading = rng.random() < 0.2
        if self.is_reading:
            table.started_S[made.open(Sampling(seed=1, max_tokens=4), prompt=(1, 2) * 6)] = True
        self.sessions: list[PlainLoner] = []
        self.rows: list[int] = []
        for _ in range(rng.randint(1, 3 if self.is_reading else 4)):
            verifier = rng.choice(list(SHAPES))
            row = made.open(
                Sampling(seed=1, max_tokens=64, ignore_eos=True),
                committed=(1, 2, 3),
                speculation=Speculation(verifier=verifier, tree_shape=parse(SHAPES[verifier])),
            )
            table.started_S[row] = True
            table.cached_S[row] = table.lengths_S[row] - 1
            table.joined_SD[row, number] = is_joined = rng.random() < 0.9
            said_s = NOW - rng.choice([0.0, rng.uniform(0.0, 0.05)])
            table.said_s_SL[row, table.lengths_S[row]] = said_s
            table.yields_S[row] = rng.uniform(1.0, 5.0)
            is_heard = rng.random() < 0.15
            table.heard_S[row] = table.lengths_S[row] - (0 if is_heard else rng.randint(1, 3))
            has = rng.random() < 0.4
            if has:
                self._give(row, number)
            self.rows.append(row)
            self.sessions.append(
                PlainLoner(
                    verdict=said_s,
                    tokens=float(table.yields_S[row]),
                    has=has,
                    is_due=is_joined and not is_heard,
                )
            )

    def _give(self, row: int, number: int) -> None:
        one = FrozenCandidates(
            handle=0,
            base_length=int(self.state.table.lengths_S[row]),
            base_hash=self.state.sessions[row].hash,
            round=1,
            frozen=tree((1,)),
        )
        batch = FrozenBatch(trees_E=(one,), bytes_E=np.array([1]))
        assert self.state.stores[FROZEN].graft(batch, np.array([row]), number).added_E.tolist() == [
            1
        ]

    def plain(self) -> tuple[float, frozenset[int]]:
        """As the plain loop decides."""
        first = self.planner.start.waiting.first
        return who_goes(
            self.sessions,
            now=NOW,
            seconds=self.state.cost.predict,
            last_nodes=self.planner.start.last_nodes,
            first=PlainDelay(mean_s=first.mean_s, spread_s=first.spread_s),
            patience_s=self.state.settings.max_patience_s,
            smallest_s=SMALLEST_S,
            is_reading=self.is_reading,
        )

    def going(self, decided: Pass) -> set[int]:
        """Who decodes in a pass."""
        return {self.rows.index(row) for row in decided.rows_E.tolist() if row in self.rows}


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_the_planner_decides_as_the_plain_loop(start: int) -> None:
    """Trees that are there, on their way, late or of no worth, fast and slow drafters, dear and free rows."""
    for seed in range(start, start + 100):
        scene = Scene(seed)
        wait_s, going = scene.plain()
        decided = scene.planner.plan(NOW)
        if isinstance(decided, Pass):
            assert wait_s == 0.0, seed
            assert scene.going(decided) == going, seed
        else:
            assert decided == pytest.approx(wait_s, rel=1e-9), seed


def test_all_ways_are_met() -> None:
    """Nobody is left out, some are, and passes that could begin wait for these."""
    waits = {"begins": 0, "leaves out": 0, "waits for them": 0, "has nobody": 0}
    for scene in map(Scene, range(300)):
        wait_s, going = scene.plain()
        is_all = len(going) == len(scene.sessions)
        if not going:
            waits["has nobody"] += 1
        elif wait_s > 0.0:
            waits["waits for them"] += 1
        else:
            waits["begins" if is_all else "leaves out"] += 1
    assert min(waits.values()) > 20, waits


def test_who_is_left_out_goes_along_in_the_end() -> None:
    """When nothing comes: within the time that its candidates could have been worth, and what was waited for in vain is worth less."""
    for seed in range(40):
        scene = Scene(seed)
        table = scene.state.table
        before, now = table.yields_S[scene.rows].copy(), NOW
        for _ in range(20):
            decided = scene.planner.plan(now)
            if isinstance(decided, Pass) and len(scene.going(decided)) == len(scene.rows):
                break
            now += decided if isinstance(decided, float) else 0.01
        else:
            raise AssertionError(f"{seed}: somebody is left out for ever")
        assert now - NOW < 0.01 * 4.0 * 4.0 + 0.1
        waited = [row for row, one in zip(scene.rows, scene.sessions, strict=True) if not one.has]
        assert (table.yields_S[scene.rows] <= before).all()
        assert np.isnan(table.waited_s_S[waited]).all()


def soon(seed: int) -> Scene | None:
    """A scene in which what is missing comes half a millisecond later, if somebody has candidates and others lack them."""
    scene = Scene(seed)
    table = scene.state.table
    scene.planner.start.waiting.first = Delay(0.004, 0.0001)
    table.yields_S[scene.rows] = [12.0 if one.has else 4.0 for one in scene.sessions]
    table.said_s_SL[scene.rows, table.lengths_S[scene.rows]] = NOW - 0.0035
    kinds = {(one.has, one.is_due) for one in scene.sessions}
    return scene if not scene.is_reading and {(True, True), (False, True)} == kinds else None


def test_a_pass_that_could_begin_is_put_off_once() -> None:
    """From when it could have begun, however often it is asked; the next pass may wait anew."""
    count = 0
    for seed in range(200):
        scene = soon(seed)
        if scene is None:
            continue
        count += 1
        wait_s = scene.planner.plan(NOW)
        assert isinstance(wait_s, float)
        assert wait_s > 0.0005
        for part in (0.1, 0.2):
            assert scene.planner.plan(NOW + part * wait_s) == pytest.approx((1.0 - part) * wait_s)
        end = NOW + 1.01 * wait_s
        begun = scene.planner.plan(end)
        assert isinstance(begun, Pass)
        assert scene.going(begun) == {place for place, one in enumerate(scene.sessions) if one.has}
        table = scene.state.table
        table.said_s_SL[scene.rows, table.lengths_S[scene.rows]] += end - NOW
        assert scene.planner.plan(end) == pytest.approx(wait_s)
    assert count > 10


@pytest.mark.parametrize(("verifier", "shape"), SHAPES.items())
def test_the_first_hope_is_a_whole_tree(verifier: str, shape: str) -> None:
    """A smaller one would keep a slow drafter's trees from ever being seen."""
    made = Sessions(engine(1))
    sampling = Sampling(seed=1, max_tokens=64)
    own = made.open(sampling, speculation=Speculation(verifier=verifier, tree_shape=parse(shape)))
    pooled = made.open(sampling)
    assert made.state.table.yields_S[own] == 1.0 + parse(shape).depth
    assert made.state.table.yields_S[pooled] == yields.PRIOR_YIELD
