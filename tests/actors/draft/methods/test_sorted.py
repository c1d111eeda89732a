"""Drafting with exits: the law that goes out with a tree, how deep a session goes for its target, and what a folder means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.actors.draft.bench import Bench, MiniTarget, make_attach
from tests.actors.draft.methods.small_nested import VOCAB, logits_after, save

from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.methods.sorted import SortedOptions, build
from outrider.actors.draft.nested.exit_choice import EXPLORE_EVERY, ExitChoice
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import LoadedDrafter
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.frozen.sparse_rows import freeze, least_prob, rest_share
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.level_shapes import LevelShape

EXITS = (1, 2, 4)
CONFIDENCE = 0.2
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with exits."""
    return save(tmp_path_factory.mktemp("nested"), EXITS[-1], EXITS)


def loaded(folder: str, **options: bool | float | str) -> LoadedDrafter:
    """The method with it."""
    engine = EngineSettings(model=folder, num_slots=3, num_threads=1)
    return build(
        DraftSettings(
            name="d", incarnation=1, method="sorted", engine=engine, options=options, max_ahead=32
        )
    )


def exit_of(text: list[int]) -> int:
    """The first exit that is sure of what follows."""
    for layers in EXITS[:-1]:
        if float(logits_after(text, layers).softmax(-1).max()) > CONFIDENCE:
            return layers
    return EXITS[-1]


@pytest.mark.parametrize("verifier", ["speculative_sampling", "mcsd_with_replacement", "traversal"])
def test_a_frozen_tree_carries_the_law_of_the_exit_that_its_text_leaves_at(
    folder: str, verifier: str
) -> None:
    """At the request's temperature, with the very numbers that the tokens were drawn from; over trees of several rounds."""
    method = loaded(folder, confidence=CONFIDENCE, adaptive=False)
    bench = Bench(method.sessions, method.drafter)
    shape = LevelShape((1, 1, 1)) if verifier == "speculative_sampling" else LevelShape((2, 2))
    attach = make_attach(
        speculation=Speculation(verifier=verifier, tree_shape=shape), temperature=TEMPERATURE
    )
    target = MiniTarget(random_table(VOCAB, 1, seed=3, concentration=0.2), attach)
    bench.worker.post(attach)
    used: set[int] = set()
    for _ in range(4):
        bench.settle()
        sent = [report for report in bench.reports if isinstance(report, CandidatesSent)]
        bench.reports.clear()
        for frozen in [
            tree.frozen
            for report in sent
            for tree in report.own_trees
            if tree.base_length == target.length
        ]:
            tree = frozen.tree
            paths: list[list[int]] = [[]]
            for token, parent in zip(tree.tokens_N, tree.parents_N, strict=True):
                paths.append([*paths[parent + 1], token])
            for parent, source in zip(tree.parents_N, tree.sources_N, strict=True):
                text = [*target.tokens, *paths[parent + 1]]
                layers = exit_of(text)
                used.add(layers)
                level = len(paths[parent + 1])
                law = torch.softmax(logits_after(text, layers).double() / TEMPERATURE, -1).numpy()
                expected = freeze(
                    law, least_prob(level), rest_share=rest_share(shape.branching[level])
                )
                shipped = frozen.rows[source]
                # Rounded to steps on the wire: a number at the edge of one may fall on either side.
                np.testing.assert_allclose(
                    shipped.dense(VOCAB), expected.dense(VOCAB), rtol=0.1, atol=2e-3
                )
        bench.worker.post(target.commit(2))
    assert len(used) > 1, "rows left at different exits"


def learned(choice: ExitChoice, link: int, rates: tuple[float, ...]) -> None:
    """Many draws of one target, accepted so often at each exit."""
    for exit_, rate in enumerate(rates):
        for draw in range(200):
            choice.learn(link, exit_, hits=int(draw % 20 < 20 * rate), tries=1)


def test_a_large_target_is_worth_a_deep_exit_and_a_small_one_is_not() -> None:
    """By the same drafter at the same time: what is best follows from how long the target's passes take."""
    choice = ExitChoice(3)
    for _ in range(50):
        choice.took(3.2e-3, [1e-3, 1e-3, 1e-3], deepest=2)
    learned(choice, 1, (0.6, 0.7, 0.75))
    learned(choice, 2, (0.6, 0.7, 0.75))
    assert choice.best(1, pass_s=0.1, round_trip_s=0.0) == 2
    assert choice.best(2, pass_s=2e-3, round_trip_s=0.0) == 0
    # Where deeper is no better, the time of it is not spent.
    learned(choice, 3, (0.7, 0.7, 0.7))
    assert choice.best(3, pass_s=0.01, round_trip_s=0.0) == 0
    # A target that has not said anything gets what the model can.
    assert choice.best(4, pass_s=0.0, round_trip_s=0.0) == 2


def test_depth_that_is_seldom_used_is_cheap() -> None:
    """A threshold that most rows meet early makes a deep exit worth it where running all rows deep would not be."""
    rare, always = ExitChoice(2), ExitChoice(2)
    for step in range(200):
        rare.took(1e-3 if step % 10 else 3e-3, [1e-3, 0.0 if step % 10 else 2e-3], deepest=1)
        always.took(3e-3, [1e-3, 2e-3], deepest=1)
    for choice in (rare, always):
        learned(choice, 1, (0.6, 0.7))
    assert rare.level_s(1) < 0.5 * always.level_s(1)
    assert rare.best(1, pass_s=3e-3, round_trip_s=0.0) == 1
    assert always.best(1, pass_s=3e-3, round_trip_s=0.0) == 0


def test_every_exit_is_tried_now_and_then() -> None:
    """Else an exit that was bad once would never be known to have become better."""
    choice = ExitChoice(3)
    choice.took(3e-3, [1e-3, 1e-3, 1e-3], deepest=2)
    tried = [
        choice.after_verdict(1, pass_s=0.01, round_trip_s=0.0) for _ in range(6 * EXPLORE_EVERY)
    ]
    explored = [exit_ for exit_, is_to_learn in tried if is_to_learn]
    assert set(explored) == {0, 1, 2}
    assert len(explored) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.5}, "confidence"),
        ({"exit": -1}, "exit"),
        ({"exits": "1,x"}, "exits"),
        ({"exits": "2,1"}, "exits is '2,1'; they must ascend, from 1 on"),
        ({"exits": "1,1"}, "must ascend"),
        ({"exits": "0,2"}, "must ascend"),
        ({"exit": 3, "exits": "1,2"}, "exit is 3, which is none of exits, '1,2'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, float | str], message: str) -> None:
    """Before a model is loaded."""
    with pytest.raises(ValueError, match=message):
        SortedOptions(**options)  # type: ignore[arg-type]


def test_the_folder_says_what_it_is_and_is_a_plain_model_too(folder: str, tmp_path: Path) -> None:
    """`--draft FOLDER` means the method; one without exits is a language model, and needs to be told exits."""
    assert loading_method(folder) == "sorted"
    plain = save(tmp_path / "plain", 2)
    assert loading_method(plain) is None
    with pytest.raises(ValueError, match=r"no 'exits' in its config\.json"):
        loaded(plain)
    assert loaded(plain, exits="1,2").vocab_size == VOCAB
    with pytest.raises(ValueError, match="has exits after 1, 2, 4 layers"):
        loaded(folder, exit=3)
