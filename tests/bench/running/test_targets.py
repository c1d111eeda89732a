"""How many layers a target gets, and what a pass of an untimed size takes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from bench.running.targets import MOST_TURNS, interpolate, layers_for, prepared

CURVE = ((1, 1.0), (2, 2.0), (4, 3.0))


@pytest.mark.parametrize(
    ("rows", "seconds"), [(1, 1.0), (2, 2.0), (3, 2.5), (4, 3.0), (6, 4.0), (0, 0.0)]
)
def test_between_and_beyond_timed_sizes(rows: int, seconds: float) -> None:
    """Lines between the sizes, the last slope beyond."""
    assert interpolate(CURVE, rows) == pytest.approx(seconds)


def test_one_timed_size() -> None:
    """Nothing is known of other sizes."""
    assert interpolate(((1, 1.5),), 7) == 1.5


def test_layers_follow_the_cost_of_one() -> None:
    """Eight layers take 2 ms, 24 more 6 ms more: 25 ms are 100 layers."""
    assert layers_for(25e-3, few=(8, 2e-3), more=(32, 8e-3)) == 100


def test_a_target_that_is_too_slow_already() -> None:
    """No layer can be taken away."""
    with pytest.raises(ValueError, match="more than the 25"):
        layers_for(25e-3, few=(8, 30e-3), more=(32, 40e-3))


def test_a_busy_machine_is_noticed() -> None:
    """More layers that take less time are no basis."""
    with pytest.raises(ValueError, match="too busy"):
        layers_for(25e-3, few=(8, 3e-3), more=(32, 2e-3))


def test_a_target_that_came_out_too_fast_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers cost less in a deep model than in a shallow one here; the model that is measured takes the wanted time all the same."""
    made: dict[str, int] = {}

    class Timer:
        def ask(self, asked: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
            layers = made.get(asked["model"], 20)
            seconds = 1e-3 * (3.0 + 0.1 * min(layers, 60) + 0.08 * max(layers - 60, 0))
            return {"layers": layers, "curve": [(1, seconds)]}

    monkeypatch.setattr("bench.running.targets.Child", lambda name: nullcontext(Timer()))
    monkeypatch.setattr(
        "outrider.actors.train.demo.deepen.deepen_folder",
        lambda source, folder, *, num_layers: made.update({str(folder): num_layers}),
    )
    with prepared("demo:target", "25") as target:
        assert 25e-3 <= target.pass_s < 26e-3
        assert target.layers == made[target.model]
    assert len(made) == 1 + MOST_TURNS
