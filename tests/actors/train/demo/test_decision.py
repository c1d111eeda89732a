"""Training of decision models, in small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outrider.actors.draft.stopping.stop_model_file import FILE_NAME, find_decision, read_decision
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.speculation.stop_model import NUM_FEATURES
from outrider.actors.train.demo.recipe import Recipe
from outrider.actors.train.demo.train_demo import train_demo
from outrider.actors.train.stop_model.stop_model_samples import WAYS, Samples
from outrider.actors.train.stop_model.train_stop_model import fit, train_decision
from outrider.actors.train.training_errors import DataError, TrainError


def made_up(count: int, seed: int) -> Samples:
    """Rows of which those with a great first probability are accepted, mostly."""
    rng = np.random.default_rng(seed)
    features_NF = rng.random((count, NUM_FEATURES)).astype(np.float32)
    return Samples(
        features_NF=features_NF,
        accepted_N=rng.random(count) < 0.1 + 0.8 * (features_NF[:, 0] > 0.6),
        ways_N=np.arange(count) % len(WAYS),
        texts_N=np.arange(count) // 50,
    )


def test_the_model_learns_what_goes_with_acceptance() -> None:
    """Scores of rows that are accepted are above one half, others below, though acceptance is the rarer outcome."""
    samples = made_up(6000, 1)
    model = fit(samples, samples.texts_N % 6 == 0)
    fresh = made_up(2000, 2)
    scores_N, is_good_N = model.scores(fresh.features_NF), fresh.features_NF[:, 0] > 0.6
    assert ((scores_N > 0.5) == is_good_N).mean() > 0.93


def test_one_outcome_only_teaches_nothing() -> None:
    """It is said, not divided by zero."""
    samples = replace(made_up(200, 1), accepted_N=np.ones(200, dtype=bool))
    with pytest.raises(TrainError, match="100% of the candidates were accepted"):
        fit(samples, samples.texts_N == 0)


def test_a_trained_pair_gets_its_model(
    tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path
) -> None:
    """The file lies in the draft model's folder, and the drafter that loads it finds it by fingerprint."""
    out = tmp_path / "out"
    train_demo(
        tiny_data, out, device="cpu", recipe=tiny_recipe, stages=("tokenizer", "target", "draft")
    )
    # The records of the tiny corpus are shorter than what is usually given.
    sources = tiny_recipe.sources
    with pytest.raises(DataError, match="texts of at least 32 tokens, 12 are needed"):
        train_decision(tiny_data, out / "target", [out / "draft"], texts=12, sources=sources)
    (report,) = train_decision(
        tiny_data,
        out / "target",
        [out / "draft"],
        texts=12,
        length=24,
        prompt_length=4,
        device="cpu",
        sources=sources,
    )
    assert report.samples == 12 * 20 * len(WAYS)
    assert set(report.ways) == set(WAYS)
    assert Path(report.file) == out / "draft" / FILE_NAME
    engine = load_engine(EngineSettings(model=str(out / "draft"), num_slots=1, max_context=64))
    assert find_decision(out / "draft", engine.spec.fingerprint) is not None
    assert read_decision(out / "draft" / FILE_NAME)[1] == engine.spec.fingerprint


def test_bad_arguments_are_refused_before_work(tiny_data: Path, tmp_path: Path) -> None:
    """Each names the argument or the folder."""
    with pytest.raises(TrainError, match="texts is 3; give at least 12"):
        train_decision(tiny_data, tmp_path, [tmp_path], texts=3)
    with pytest.raises(TrainError, match="length is 32; give more than the 32"):
        train_decision(tiny_data, tmp_path, [tmp_path], length=32)
    with pytest.raises(TrainError, match="no model there; give a folder with a config"):
        train_decision(tiny_data, tmp_path, [tmp_path])
