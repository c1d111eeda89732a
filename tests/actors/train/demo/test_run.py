"""Stages: what is kept between runs, and what a changed run says."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.actors.train.demo.recipe import STAGES, Recipe
from outrider.actors.train.demo.train_demo import train_demo
from outrider.actors.train.training_errors import ResumeError


def with_steps(recipe: Recipe, stage: str, steps: int) -> Recipe:
    """The recipe with another length of one stage."""
    longer = replace(recipe.schedules[stage], steps=steps)
    return replace(recipe, schedules={**recipe.schedules, stage: longer})


@pytest.fixture
def whole(
    tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a finished run, a copy of its own for each test. It is run once: what it is depends on texts and recipe."""
    made = tmp_path_factory.getbasetemp() / "finished-run"
    if not made.exists():
        train_demo(tiny_data, tmp_path / "first", device="cpu", recipe=tiny_recipe)
        (tmp_path / "first").rename(made)
    return Path(shutil.copytree(made, tmp_path / "whole"))


def test_stages_done_apart_equal_one_run(
    tiny_data: Path, tiny_recipe: Recipe, whole: Path, tmp_path: Path
) -> None:
    """Each stage finds what the earlier ones left. A run is a function of data and recipe: tokenizer and weights are the same."""
    for stage in STAGES:
        train_demo(tiny_data, tmp_path / "parts", device="cpu", recipe=tiny_recipe, stages=(stage,))
    for name in STAGES[1:]:
        for file in ("model.safetensors", "tokenizer.json"):
            one, other = (out / name / file for out in (whole, tmp_path / "parts"))
            assert one.read_bytes() == other.read_bytes()


def test_target_can_be_trained_on(tiny_data: Path, tiny_recipe: Recipe, whole: Path) -> None:
    """More steps continue a finished target; its old drafts are then refused, not reused."""
    before = (whole / "target" / "model.safetensors").read_bytes()
    longer = with_steps(tiny_recipe, "target", 16)
    with pytest.raises(ResumeError, match=r"draft\.pt: saved by a run with settings draft of"):
        train_demo(tiny_data, whole, device="cpu", recipe=longer)
    assert before != (whole / "target" / "model.safetensors").read_bytes()
    assert len(list((whole / "progress").glob("rollouts-*"))) == 2


def test_other_texts_are_another_run(tiny_data: Path, tiny_recipe: Recipe, tmp_path: Path) -> None:
    """In the same place, too; also where only the tokenizer was made again. A draft begun again learns from none of the old writing."""
    stages = ("tokenizer", "target", "draft")
    train_demo(tiny_data, tmp_path, device="cpu", recipe=tiny_recipe, stages=stages)
    target = (tmp_path / "target" / "model.safetensors").read_bytes()
    file = tiny_data / "prose.jsonl"
    file.write_text(file.read_text().replace("follows", "precedes"))
    message = r"target-shallow\.pt: saved by a run with settings .*texts=\w+, this one has .*texts="
    with pytest.raises(ResumeError, match=message):
        train_demo(tiny_data, tmp_path, device="cpu", recipe=tiny_recipe)
    longer = with_steps(tiny_recipe, "target", 16)
    afresh = {"device": "cpu", "recipe": longer, "resume": False}
    train_demo(tiny_data, tmp_path, stages=("draft",), **afresh)  # type: ignore[arg-type]
    assert len(list((tmp_path / "progress").glob("rollouts-*"))) == 2
    train_demo(tiny_data, tmp_path, stages=("tokenizer",), **afresh)  # type: ignore[arg-type]
    with pytest.raises(ResumeError, match=message):
        train_demo(tiny_data, tmp_path, device="cpu", recipe=longer, stages=("target",))
    assert (tmp_path / "target" / "model.safetensors").read_bytes() == target
