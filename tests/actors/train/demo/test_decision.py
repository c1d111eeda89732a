"""Training of decision models, in small."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from outrider.actors import demo
from outrider.actors.draft.stopping.decision_place import FILE_NAME
from outrider.actors.draft.stopping.stop_model_file import find_decision, read_decision
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.speculation.stop_model import NUM_FEATURES
from outrider.actors.train.demo.recipe import Recipe
from outrider.actors.train.demo.train_demo import train_demo
from outrider.actors.train.stop_model import train_stop_model
from outrider.actors.train.stop_model.stop_model_samples import WAYS, Samples
from outrider.actors.train.stop_model.train_stop_model import fit, train_decision
from outrider.actors.train.text.train_tokenizer import load_tokenizer, train_tokenizer
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


def _folder(path: Path, kind: str = "llama", vocab_size: int = 4096) -> Path:
    """A small model with the shipped tokenizer."""
    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(
        kind,
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    made: Any = AutoModelForCausalLM
    made.from_config(config).save_pretrained(path)
    load_tokenizer(demo.path("target")).save_pretrained(path)
    return path


def test_models_of_any_family(tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path) -> None:
    """Each is read as what it is: as another it would be, without the weights that the other has no place for."""
    target = _folder(tmp_path / "t")
    draft = _folder(tmp_path / "d", "qwen3")
    given = {"texts": 12, "length": 24, "prompt_length": 4, "sources": tiny_recipe.sources}
    (report,) = train_decision(tiny_data, target, [draft], **given)  # type: ignore[arg-type]
    engine = load_engine(EngineSettings(model=str(draft), num_slots=1, max_context=64))
    assert read_decision(Path(report.file))[1] == engine.spec.fingerprint


def test_models_that_are_no_pair(
    tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the target writes: a draft net, no weights, no tokenizer, another one, other ids, and a folder that gets no file."""
    monkeypatch.setattr(train_stop_model, "write_texts", None)
    target = _folder(tmp_path / "t")
    wide = _folder(tmp_path / "w", vocab_size=4160)
    other = _folder(tmp_path / "o")
    train_tokenizer(["abc"], 262).save_pretrained(other)
    bare = _folder(tmp_path / "b")
    for file in bare.glob("tokenizer*"):
        file.unlink()
    broken = _folder(tmp_path / "x")
    (broken / "model.safetensors").write_bytes(b"half")
    for draft, message in (
        (demo.path("eagle3"), "is a draft net of the method eagle3"),
        (broken, "draft .*x'"),
        (bare, "draft .*b'"),
        (other, "its tokenizer is not the target's"),
        (wide, "4160 token ids, and the target has 4096"),
    ):
        with pytest.raises(TrainError, match=message):
            train_decision(tiny_data, target, [draft], sources=tiny_recipe.sources)

    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    with pytest.raises(TrainError, match=r"draft is .*nothing can be written in .*Permission"):
        train_decision(tiny_data, target, [target], sources=tiny_recipe.sources)


def test_bad_arguments_are_refused_before_work(tiny_data: Path, tmp_path: Path) -> None:
    """Each names the argument or the folder."""
    with pytest.raises(TrainError, match="texts is 3; give at least 12"):
        train_decision(tiny_data, tmp_path, [tmp_path], texts=3)
    with pytest.raises(TrainError, match="length is 32; give more than the 32"):
        train_decision(tiny_data, tmp_path, [tmp_path], length=32)
    with pytest.raises(TrainError, match="no model there; give a folder with a config"):
        train_decision(tiny_data, tmp_path, [tmp_path])
