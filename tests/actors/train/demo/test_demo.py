"""The whole training in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider.actors.train.demo.recipe import Recipe
from outrider.actors.train.demo.train_demo import choose_device, train_demo
from outrider.actors.train.training_errors import DataError, TrainError


def test_all_stages_leave_loadable_models(
    tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path
) -> None:
    """Tokenizer, target and drafts are trained, measured and loadable each on its own."""
    out = tmp_path / "out"
    report = train_demo(tiny_data, out, device="cpu", recipe=tiny_recipe)
    for name in ("target", "draft", "draft-small"):
        assert len(AutoTokenizer.from_pretrained(out / name)) == 300
        model = AutoModelForCausalLM.from_pretrained(out / name)
        assert report.parameters[name] == model.num_parameters()
    assert set(report.losses) == {"prose", "chat", "long"}
    assert set(report.agreements["draft"]) == {"prose", "chat", "own writing"}
    assert set(report.agreements) == {"draft", "draft-small"}
    assert all(0 <= a.first <= a.among_four <= 1 for a in report.agreements["draft"].values())
    assert json.loads((out / "report.json").read_text())["losses"] == report.losses
    before = (out / "draft" / "model.safetensors").read_bytes()
    assert train_demo(tiny_data, out, device="cpu", recipe=tiny_recipe) == report
    assert before == (out / "draft" / "model.safetensors").read_bytes()
    assert list((out / "progress").glob("*.pt"))
    with pytest.raises(InterruptedError):
        train_demo(tiny_data, out, device="cpu", recipe=tiny_recipe, resume=False, clock=killed)
    assert not list((out / "progress").glob("*.pt")), "it would be gone on with"
    assert not (out / "tokenizer").exists()


def killed() -> float:
    """Stands for a kill soon after the start."""
    raise InterruptedError


def test_draft_needs_its_target(tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path) -> None:
    """A stage without its forerunner says which one to run."""
    stages = ("tokenizer", "draft")
    with pytest.raises(TrainError, match="no such model yet; run the target stage first"):
        train_demo(tiny_data, tmp_path, device="cpu", recipe=tiny_recipe, stages=stages)


def test_bad_arguments_are_refused_before_work(tiny_data: Path, tmp_path: Path) -> None:
    """Each names the argument, the value and the choices."""
    out = tmp_path / "out"
    with pytest.raises(TrainError, match="stages: unknown x; choose among tokenizer"):
        train_demo(tiny_data, out, stages=("x",))
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(TrainError, match=f"steps_scale is {scale}; give a number above 0"):
            train_demo(tiny_data, out, steps_scale=scale)
    with pytest.raises(TrainError, match="device is 'tpu'; choose auto, cpu or cuda"):
        train_demo(tiny_data, out, device="tpu")
    with pytest.raises(DataError, match="missing openstax"):
        train_demo(tiny_data, out, device="cpu")
    assert not out.exists()


def test_cpu_is_always_there() -> None:
    """`cpu` is the CPU even where a GPU is."""
    assert choose_device("cpu").type == "cpu"
