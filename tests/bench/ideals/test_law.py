"""How far a text follows the best part of a tree, and what a drafter of tables would have foreseen."""

from __future__ import annotations

import numpy as np
import pytest

from bench.ideals.law import Text, foreseen
from bench.running.led_drafter import LedDrafter, Tree
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine
from outrider.actors.speculation.options import Speculation

TREE = Tree(
    # 5 at the root, 6 beside it; 7 and 8 below 5; 9 below 7.
    tokens=[5, 6, 7, 8, 9],
    parents=[-1, -1, 0, 0, 2],
    values=[0.8, 0.15, 0.5, 0.2, 0.45],
)


@pytest.mark.parametrize(
    ("ahead", "size", "expected"),
    [
        ([5, 7, 9, 1], 16, 3),
        ([5, 7, 9], 3, 3),
        ([5, 7, 9], 2, 2),
        ([5, 8], 3, 1),
        ([5, 8], 4, 2),
        ([6, 7], 16, 1),
        ([1], 16, 0),
    ],
)
def test_walk_through_the_most_valuable_nodes(ahead: list[int], size: int, expected: int) -> None:
    """Nodes that a smaller tree would not have do not count."""
    assert len(TREE.walk(ahead, TREE.best(size))) == expected


def test_foreseen_is_what_the_drafter_puts_first() -> None:
    """With two children a greedy drafter foresees the two likeliest tokens."""
    probs = np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5]])
    table = Table(log_probs=np.log(probs), name="table")
    engine = TabularEngine(
        table, EngineSettings(model="tabular:x", num_slots=1, max_scratch=16, max_context=64)
    )
    sessions = DraftSessions(1, num_nodes_of(2, 16, lockstep=True))
    method = AutoregressiveDrafter(
        sessions, engine, width=2, max_ahead=16, prefill_chunk=4, lockstep=True
    )
    output = [1, 1, 0, 0, 2, 2, 1]
    found = foreseen(
        LedDrafter(sessions, method, max_ahead=16),
        Text(prompt=[0], output=output, seed=3),
        0.0,
        Speculation(max_nodes=2, max_depth=1),
    )
    before = [0, *output[:-1]]
    assert found == [
        token in np.argsort(-probs[last])[:2] for last, token in zip(before, output, strict=True)
    ]
    assert engine.num_free == 1
