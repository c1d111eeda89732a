"""A whole run within its minutes, by a clock that only the work moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from outrider.actors.train.demo import rollout
from outrider.actors.train.demo import stages as run
from outrider.actors.train.demo.recipe import STAGES, Recipe
from outrider.actors.train.demo.train_demo import train_demo
from outrider.actors.train.loop import output_head
from outrider.actors.train.loop.training_report import TrainReport
from outrider.actors.train.training_errors import TrainError

STEP, CHUNK, DRAFT_STEP = 20.0, 50.0, 10.0
"""Seconds."""


@dataclass
class Work:
    """A clock, and how many losses of the target may still be computed before an interrupt."""

    now: float = 0.0
    speed: float = 1.0
    steps_left: int = 10**9

    def __call__(self) -> float:
        return self.now

    def costs(self, seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        """`work`, and the clock moves."""

        def done(*args: Any) -> Any:
            if seconds == STEP:
                if not self.steps_left:
                    raise KeyboardInterrupt
                self.steps_left -= 1
            self.now += seconds / self.speed
            return work(*args)

        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Training and writing cost time, nothing else does."""
    clock = Work()
    monkeypatch.setattr(run, "text_loss", clock.costs(STEP, output_head.text_loss))
    monkeypatch.setattr(run, "distillation_loss", clock.costs(DRAFT_STEP, run.distillation_loss))
    monkeypatch.setattr(rollout, "continue_rows", clock.costs(CHUNK, rollout.continue_rows))
    return clock


Train = Callable[..., TrainReport]


@pytest.fixture
def train(tiny_data: Path, tiny_recipe: Recipe, work: Work) -> Train:
    """`train_demo` on the tiny corpus by the clock of `work`."""

    def call(out: Path, **options: Any) -> TrainReport:
        return train_demo(tiny_data, out, device="cpu", recipe=tiny_recipe, clock=work, **options)

    return call


def counts(report: TrainReport) -> dict[str, int]:
    """What was done of each part."""
    return {part: decision.count for part, decision in report.parts.items()}


def weights(out: Path) -> list[bytes]:
    """Of all three models."""
    return [(out / name / "model.safetensors").read_bytes() for name in STAGES[1:]]


def test_a_slow_machine_does_less_and_says_so(train: Train, work: Work, tmp_path: Path) -> None:
    """Five minutes: each stage takes its share and the rest of the former. Under another bound, too, it is not trained on."""
    report = train(tmp_path, minutes=5.0)
    assert work.now <= 300.0
    wanted = {
        "target-shallow": 3,
        "target": 6,
        "target writes": 4,
        "draft": 4,
        "draft-small": 2,
        "evaluation": 24,
    }
    assert counts(report) == wanted
    first = "target-shallow: 3 of 4 steps, as 5 minutes allow; --minutes 0 --afresh for all"
    assert report.cut[0] == first
    assert [sentence.split(":")[0] for sentence in report.cut] == list(wanted)[:-1]
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored == json.loads(json.dumps(asdict(report)))
    # The drafts hang on the target as it is.
    before = weights(tmp_path)
    assert train(tmp_path, minutes=5.0) == report
    train(tmp_path, minutes=0.0)
    assert weights(tmp_path) == before


def test_a_fast_machine_does_what_it_would_without_a_bound(
    train: Train, work: Work, tmp_path: Path
) -> None:
    """The same weights, byte for byte, and nothing is called cut."""
    work.speed = 1000.0
    bounded = train(tmp_path / "bounded", minutes=58.0)
    free = train(tmp_path / "free", minutes=0.0)
    assert weights(tmp_path / "bounded") == weights(tmp_path / "free")
    assert bounded.cut == free.cut == ()
    assert counts(bounded) == counts(free)
    assert (bounded.losses, bounded.agreements) == (free.losses, free.agreements)


def test_an_interrupted_run_keeps_its_decisions(train: Train, work: Work, tmp_path: Path) -> None:
    """Faster afterwards, it still ends as the uninterrupted one; the time before counts."""
    whole = train(tmp_path / "whole", minutes=5.0, stages=("tokenizer", "target"))
    assert (counts(whole)["target-shallow"], counts(whole)["target"]) == (4, 10)
    start, work.steps_left = work.now, 4 + 6
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", minutes=5.0, stages=("tokenizer", "target"))
    stored = json.loads((tmp_path / "cut" / "progress" / "budget.json").read_text())
    assert sum(stored["seconds"].values()) == work.now - start == 10 * STEP
    work.steps_left, work.speed = 10**9, 1000.0
    resumed = train(tmp_path / "cut", minutes=5.0, stages=("tokenizer", "target"))
    assert counts(resumed) == counts(whole)
    one, other = (tmp_path / name / "target" / "model.safetensors" for name in ("whole", "cut"))
    assert one.read_bytes() == other.read_bytes()


def test_a_bad_bound_is_refused_before_work(train: Train, tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(TrainError, match="minutes is -1"):
        train(tmp_path / "out", minutes=-1.0)
    assert not (tmp_path / "out").exists()
