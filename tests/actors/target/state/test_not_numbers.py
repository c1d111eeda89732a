"""A model whose scores are not numbers: the sequence that meets them ends and says why; nothing else does."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
import torch
from tests.actors.engine.altered_scores import alter_scores
from tests.actors.pair.pair import Pair, blurred, texts_alone
from tests.actors.target.state.chaos import Harness, engine, opening, run_chaos, run_plain

from outrider.actors.engine.protocol import Engine
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.state.target_events import Failed, Finished
from outrider.actors.target.target_worker import MAX_FAILED_PASSES

BAD = 5
"""The token after which the model gives no numbers."""

KINDS = {
    "all NaN": [math.nan] * 6,
    "one NaN": [0.0, 0.0, math.nan, 0.0, 0.0, 0.0],
    "one infinite": [0.0, 0.0, 0.0, math.inf, 0.0, 0.0],
    "two infinite": [0.0, math.inf, 0.0, math.inf, 0.0, 0.0],
    "none finite": [-math.inf] * 6,
}

SAMPLINGS = {
    "greedy": Sampling(seed=3, max_tokens=20, temperature=0.0),
    "sampled": Sampling(seed=3, max_tokens=20, temperature=1.0),
    "cold": Sampling(seed=3, max_tokens=20, temperature=0.05),
    "filtered": Sampling(seed=5, max_tokens=20, temperature=0.9, top_k=4, top_p=0.8, min_p=0.05),
    "penalised": Sampling(seed=6, max_tokens=20, repetition_penalty=1.3, frequency_penalty=0.3),
    "reported": Sampling(seed=9, max_tokens=20, logprobs=2),
}

CASES = [
    ("all NaN", "greedy"),
    ("one NaN", "sampled"),
    ("one NaN", "cold"),
    ("one NaN", "filtered"),
    ("one infinite", "penalised"),
    ("two infinite", "reported"),
    ("two infinite", "filtered"),
    ("none finite", "sampled"),
]


def breaks(model: Engine, row: Sequence[float]) -> None:
    """From now on the model gives this row after `BAD`."""

    def change(values_V: torch.Tensor) -> None:
        values_V[:] = values_V.new_tensor([*row, *[row[0]] * (len(values_V) - len(row))])

    alter_scores(model, {BAD}, change)


def until_bad(text: Sequence[int]) -> list[int]:
    """A text as far as the broken model gives it."""
    return list(text[: text.index(BAD) + 1]) if BAD in text else list(text)


@pytest.mark.parametrize("device_draws", ["auto", "on"])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_only_the_sequence_that_meets_them_ends(
    kind: str, name: str, device_draws: Literal["auto", "on"]
) -> None:
    """It has every token before, and an error that says why and what to do; others have the text of a model that is whole."""
    events = [
        opening(1, replace(SAMPLINGS[name], logit_bias={BAD: -100.0})),
        opening(2, replace(SAMPLINGS[name], logit_bias={BAD: 2.0})),
        opening(3, Sampling(seed=1, max_tokens=5), prompt=(1, BAD)),
        opening(4, Sampling(seed=4, max_tokens=20, logit_bias={BAD: -100.0})),
    ]
    whole = run_plain(Harness(engine()), events)
    assert BAD in whole[2]
    for drafts in (False, True):
        harness = Harness(engine(), device_draws=device_draws)
        breaks(harness.engine, KINDS[kind])
        if drafts:
            texts = run_chaos(harness, events, random.Random(7))
        else:
            texts = run_plain(harness, events)
        assert texts == {1: whole[1], 2: until_bad(whole[2]), 3: [], 4: whole[4]}
        for session in (1, 4):
            assert isinstance(harness.end(session), Finished)
        for session in (2, 3):
            end = harness.end(session)
            assert isinstance(end, Failed)
            assert end.code == "INTERNAL"
            assert "scores are not numbers" in end.message
            assert "another dtype" in end.message
        assert harness.engine.num_free == 4


def test_a_model_that_gives_none_ends_requests_and_not_the_target() -> None:
    """A restart would change nothing, so each request is told, however many there are."""
    harness = Harness(engine())
    breaks(harness.engine, KINDS["all NaN"])
    for session in range(2 * MAX_FAILED_PASSES):
        run_plain(harness, [opening(session, Sampling(seed=1, max_tokens=5), prompt=(BAD,))])
        end = harness.end(session)
        assert isinstance(end, Failed)
        assert end.code == "INTERNAL"
    assert len(run_plain(harness, [opening(99, Sampling(seed=1, max_tokens=1))])[99]) == 1


TARGET = random_table(12, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(12, 2, seed=109, concentration=0.3), 0.3)
GREEDY = Sampling(seed=1, max_tokens=60, temperature=0.0)


@pytest.mark.parametrize(("kind", "temperature"), [("all NaN", 0.0), ("one infinite", 0.9)])
@pytest.mark.parametrize("verifier", [name for name in VERIFIERS if VERIFIERS[name].is_lossless])
def test_every_verifier_tells(verifier: str, kind: str, temperature: float) -> None:
    """Whoever decides, no token is made of what is no number."""
    (whole,) = texts_alone(TARGET, [GREEDY])
    assert BAD in whole
    pair = Pair(TARGET, DRAFT)
    breaks(pair.target.state.engine, KINDS[kind])
    pair.open(0, replace(GREEDY, temperature=temperature), Speculation(verifier=verifier))
    pair.open(1, replace(GREEDY, logit_bias={BAD: -100.0}), Speculation(verifier=verifier))
    pair.run()
    end = pair.ends[0]
    assert isinstance(end, Failed)
    assert end.code == "INTERNAL"
    assert pair.texts[0].index(BAD) == len(pair.texts[0]) - 1
    if not temperature:
        assert pair.texts[0] == until_bad(whole)
    assert isinstance(pair.ends[1], Finished)
