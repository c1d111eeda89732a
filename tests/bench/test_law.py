"""How far a text follows the best part of a tree, and what a drafter of tables would have foreseen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.law import Text, foreseen, walk
from outrider.actors.draft.candidates import CandidateChooser
from outrider.actors.draft.tree import TreeNews
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.engine.tabular import Table, TabularEngine
from outrider.actors.speculation.options import Sampling

TREE = TreeNews(
    # 5 at the root, 6 beside it; 7 and 8 below 5; 9 below 7.
    tokens=[5, 6, 7, 8, 9],
    parents=[0, 0, 1, 1, 3],
    estimates=bytes([200, 40, 150, 60, 250]),
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
    assert walk(TREE, ahead, size) == expected


def test_foreseen_is_what_the_drafter_puts_first() -> None:
    """With two children a greedy drafter foresees the two likeliest tokens, in every chunk of a long text."""
    probs = np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5]])
    table = Table(log_probs=np.log(probs), name="table")
    engine = TabularEngine(
        table, EngineSettings(model="tabular:x", num_slots=1, max_scratch=4, max_context=64)
    )
    chooser = CandidateChooser(3, torch.device("cpu"), 2)
    output = [1, 1, 0, 0, 2, 2, 1]
    found = foreseen(
        engine,
        chooser,
        Text(prompt=[0], output=output, seed=3),
        Sampling(seed=3, max_tokens=len(output), temperature=0.0),
    )
    before = [0, *output[:-1]]
    assert found == [
        token in np.argsort(-probs[last])[:2] for last, token in zip(before, output, strict=True)
    ]
    assert engine.num_free == 1
