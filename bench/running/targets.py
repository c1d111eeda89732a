"""The targets of a benchmark: the shipped one as it is, and deepened until a pass takes a wanted time.

Deepening adds decoder layers that compute in full and leave the output unchanged (`actors/train/demo/deepen.py`). How many it
takes is found by timing passes when a suite starts, because machines differ; a pass takes the wanted time or a
little more, if `MOST_TURNS` models get there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.running.child import Child
from outrider.actors.engine.checkpoint.model_source import resolve_model

SHIPPED = "shipped"
"""Part name of the target as it is."""

PARTS = (SHIPPED, "12", "25", "60")
"""Target costs of the single-stream suite, milliseconds of a one-token pass."""

MORE_LAYERS = 24
"""Layers added to learn what one costs."""

MOST_TURNS = 3
"""Models that are made for a part, at most: one whose passes are too short gives way to a deeper one."""

MAX_CONTEXT = 512
"""Tokens of one sequence; the longest prompt has about 200."""

TIMED_CONTEXT = 88
"""Tokens before the rows of a timed pass: the mean prompt of the suites (59) and half of what they decode. Without any, rows of a tree
seem cheaper than they ever are in a run, and the ideal is too high: sixteen more rows take .82 of a one-token pass there, .92
behind 120 tokens (200 layers)."""

TIMING_S = 300.0
"""Bound on loading and timing one model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTarget:
    """A target to measure."""

    part: str
    """Its name on the command line."""

    model: str
    """Folder, hub id or `demo:NAME`."""

    layers: int
    """Decoder layers."""

    curve: tuple[tuple[int, float], ...]
    """Seconds of a pass by rows, ascending, behind `TIMED_CONTEXT` tokens, alone on the machine."""

    @property
    def label(self) -> str:
        """For tables."""
        return "as shipped" if self.part == SHIPPED else f"deepened to {self.layers} layers"

    @property
    def pass_s(self) -> float:
        """Seconds of a one-token pass."""
        return self.curve[0][1]

    def seconds(self, rows: int) -> float:
        """Seconds of a pass over so many rows."""
        return interpolate(self.curve, rows)

    def extra_s(self, rows: int) -> float:
        """Seconds that a pass over so many rows takes beyond a one-token pass."""
        return self.seconds(rows) - self.pass_s


def interpolate(curve: Sequence[tuple[int, float]], rows: int) -> float:
    """Seconds of a pass between the sizes that were timed, and beyond them along the last slope."""
    if len(curve) == 1:
        return curve[0][1]
    steps = list(pairwise(curve))
    below, above = next((step for step in steps if rows <= step[1][0]), steps[-1])
    slope = (above[1] - below[1]) / (above[0] - below[0])
    return below[1] + slope * (rows - below[0])


def layers_for(wanted_s: float, *, few: tuple[int, float], more: tuple[int, float]) -> int:
    """How many layers make a pass take `wanted_s`, from two models that were timed.

    Args:
        wanted_s: Seconds of a pass.
        few: Layers and seconds of the model as it is.
        more: Layers and seconds of a deeper one.

    Raises:
        ValueError: The model as it is takes longer already, or the deeper one was not slower.
    """
    (few_layers, few_s), (more_layers, more_s) = few, more
    if wanted_s < few_s:
        raise ValueError(
            f"a pass of the target as it is takes {1e3 * few_s:.1f} ms, more than the {1e3 * wanted_s:.1f} ms wanted; "
            "leave that part out, or wait until the machine is quiet"
        )
    layer_s = (more_s - few_s) / (more_layers - few_layers)
    if layer_s <= 0.0:
        raise ValueError(
            f"{more_layers} layers took {1e3 * more_s:.2f} ms, {few_layers} took {1e3 * few_s:.2f} ms: the machine is "
            "too busy to time passes; try again when it is quiet"
        )
    return few_layers + max(1, round((wanted_s - few_s) / layer_s))


@contextmanager
def prepared(base: str, part: str) -> Iterator[BenchTarget]:
    """A target as a part wants it: `shipped`, or milliseconds of a pass. Its folder goes when this is left."""
    with (
        TemporaryDirectory(prefix="outrider-bench-") as folder,
        Child("bench.figures.timing") as timer,
    ):
        if part == SHIPPED:
            yield _timed(timer, part, base)
            return
        from outrider.actors.train.demo.deepen import deepen_folder

        source, root = Path(resolve_model(base).location), Path(folder)
        few = _timed(timer, SHIPPED, base)
        deepen_folder(source, root / "more", num_layers=few.layers + MORE_LAYERS)
        deep = _timed(timer, part, str(root / "more"))
        for turn in range(MOST_TURNS):
            layers = layers_for(
                1e-3 * float(part), few=(few.layers, few.pass_s), more=(deep.layers, deep.pass_s)
            )
            deepen_folder(source, root / str(turn), num_layers=layers)
            deep = _timed(timer, part, str(root / str(turn)))
            if deep.pass_s >= 1e-3 * float(part):
                break
        yield deep


def timed_alone(model: str) -> BenchTarget:
    """A model as it is, timed alone in a process."""
    with Child("bench.figures.timing") as timer:
        return _timed(timer, SHIPPED, model)


def _timed(timer: Child, part: str, model: str) -> BenchTarget:
    answer: dict[str, Any] = timer.ask(
        {"model": model, "max_context": MAX_CONTEXT, "context": TIMED_CONTEXT}, timeout_s=TIMING_S
    )
    return BenchTarget(
        part=part,
        model=model,
        layers=answer["layers"],
        curve=tuple((rows, seconds) for rows, seconds in answer["curve"]),
    )
