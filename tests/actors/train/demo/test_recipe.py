"""Schedules and shapes."""

from __future__ import annotations

import pytest

from outrider.actors.train.demo.recipe import SHAPES, build
from outrider.actors.train.loop.schedule import Schedule

SPECIAL = {"bos": 0, "eos": 1, "pad": 2}


def test_rate_rises_stays_and_falls() -> None:
    """Warm-up, plateau and decay, never zero at a step that is taken."""
    schedule = Schedule(steps=100, warmup=10, decay_share=0.2)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[0] < rates[9] < 1.0
    assert rates[10:80] == [1.0] * 70
    assert rates[-1] == pytest.approx(0.05)


def test_scaling_keeps_at_least_a_step() -> None:
    """A very small scale still trains."""
    assert Schedule(steps=100).scaled(1e-6).steps == 1


@pytest.mark.parametrize(
    ("name", "most"), [("target", 5_100_000), ("draft", 800_000), ("draft-small", 470_000)]
)
def test_models_keep_to_their_size(name: str, most: int) -> None:
    """The shapes fit the size that the package may have."""
    model = build(SHAPES[name], SPECIAL)
    assert model.num_parameters() <= most
    assert model.config.tie_word_embeddings
