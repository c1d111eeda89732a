"""Choices that are recorded once, against those that are told operation by operation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.actors.engine.graphs.tape import TapeRecorder
from tests.devices import DEVICES

from outrider.actors.draft.trees import recorded_choice
from outrider.actors.draft.trees.calibration import Scoring
from outrider.actors.draft.trees.scoring import Scorer
from outrider.actors.draft.trees.token_places import Places, ScoredTokens
from outrider.actors.engine.graphs.cuda_graph import EagerRecorder, GraphRecorder, Run, recorder_for
from outrider.actors.engine.graphs.static_shape import ROWS

VOCAB_SIZE = 300
WIDTH = 4

CPU = torch.device("cpu")


def some_places(rng: np.random.Generator, count: int) -> Places:
    """Sessions that sample and sessions that do not, at any depth."""
    return Places(
        seeds_R=rng.integers(2**63, size=count).astype(np.uint64),
        lengths_R=rng.integers(1, 5_000, size=count),
        depths_R=rng.integers(9, size=count),
        inverse_temperatures_R=rng.uniform(0.5, 3.0, size=count).astype(np.float32),
        scorings_R=rng.choice([int(Scoring.GREEDY), int(Scoring.COUPLED)], size=count),
        sessions_R=np.arange(count),
        restricted={},
    )


def check_equal(found: ScoredTokens, expected: ScoredTokens) -> None:
    """The same tokens, and what is thought of them but for rounding."""
    np.testing.assert_array_equal(found.tokens_RW, expected.tokens_RW)
    np.testing.assert_allclose(found.estimates_RW, expected.estimates_RW, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.slopes_RW, expected.slopes_RW, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_recorded_choices_are_those_that_are_told(device: str) -> None:
    """For all numbers of rows, one after another: padding and what earlier choices left behind do not matter."""
    where = torch.device(device)
    recorder: GraphRecorder = TapeRecorder() if device == "cpu" else recorder_for(where)
    scorer = Scorer(VOCAB_SIZE, where, WIDTH, 300, recorder=recorder)
    rng = np.random.default_rng(0)
    for count in [1, 2, 3, 8, 1, 17, 33, 128, 5, 150, 260, 300]:
        places, sharpness_R = some_places(rng, count), rng.uniform(0.3, 2.0, size=count)
        logits_RV = torch.from_numpy(rng.normal(size=(count, VOCAB_SIZE)).astype(np.float32))
        logits_RV *= 3.0
        before_RV = copy.deepcopy(logits_RV)
        found = scorer.likely(logits_RV.to(where), places, sharpness_R)
        assert torch.equal(logits_RV, before_RV)
        for session in range(count):
            scorer.forget(session)
        plain = Scorer(VOCAB_SIZE, CPU, WIDTH, 300)
        expected = plain.choose(plain.scores(logits_RV, places), sharpness_R)
        check_equal(found, expected)


class Counted(EagerRecorder):
    """A recorder that may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.num_recordings = 0
        self._fails = fails

    def record(self, run: Run) -> Run:
        """See `GraphRecorder`."""
        if self._fails and self.num_recordings:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.num_recordings += 1
        return run


@pytest.mark.parametrize(("most", "recordings"), [(2**22, len(ROWS)), (8 * VOCAB_SIZE, 4), (1, 0)])
def test_large_choices_are_told(
    most: int, recordings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the device takes longer than telling it, nothing is recorded and no memory is taken."""
    monkeypatch.setattr(recorded_choice, "MOST_SCORES", most)
    recorder, rng = Counted(), np.random.default_rng(1)
    scorer = Scorer(VOCAB_SIZE, CPU, WIDTH, 300, recorder=recorder)
    assert recorder.num_recordings == recordings
    places = some_places(rng, 9)
    logits_RV = torch.from_numpy(rng.normal(size=(9, VOCAB_SIZE)).astype(np.float32))
    plain = Scorer(VOCAB_SIZE, CPU, WIDTH, 300)
    expected = plain.choose(plain.scores(logits_RV, places), np.ones(9))
    check_equal(scorer.likely(logits_RV, places, np.ones(9)), expected)


def test_what_cannot_be_recorded_is_told() -> None:
    """A device without graphs drafts on."""
    rng = np.random.default_rng(2)
    scorer = Scorer(VOCAB_SIZE, CPU, WIDTH, 300, recorder=Counted(fails=True))
    places = some_places(rng, 1)
    logits_RV = torch.from_numpy(rng.normal(size=(1, VOCAB_SIZE)).astype(np.float32))
    plain = Scorer(VOCAB_SIZE, CPU, WIDTH, 300)
    expected = plain.choose(plain.scores(logits_RV, places), np.ones(1))
    check_equal(scorer.likely(logits_RV, places, np.ones(1)), expected)
