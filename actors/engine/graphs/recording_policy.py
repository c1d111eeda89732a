"""Which shapes of passes are recorded while the service runs: those whose recording would have paid by now. Pure.

A recording takes as long as some ten passes. What passes waste without it is counted for each shape; once that is as much, it is recorded, as one buys
skis when renting has cost as much (Karlin et al. 1988), which costs at most twice what knowing the future would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from outrider.actors.engine.graphs.static_shape import Need, StaticShape, cover_of

RECORDING = 10.0
"""What recording a pass takes, in the time of reading the weights: 60 to 150 ms on an H200, where a pass of a 7 B model takes 7 to 9."""

BY_ITSELF = 2.0
"""Times that a pass takes if it is told kernel by kernel, at least, and not replayed."""

MOST_RECORDED = 96
"""Recorded shapes at most. Each takes some megabytes and, together, the memory of the largest pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When shapes are recorded."""

    price: float = RECORDING
    """What passes of a shape have wasted before it is recorded, in the time of reading the weights."""

    most: int = MOST_RECORDED
    """Recorded shapes at most; 0 records none."""

    strict: bool = False
    """A shape that cannot be recorded is an error; otherwise none is recorded from then on."""

    @staticmethod
    def of(mode: str) -> Policy:
        """Of a value of `EngineSettings.cuda_graphs`."""
        match mode:
            case "on":
                # Asked for, it must show at load whether the model can be recorded.
                return Policy(price=0.0, strict=True)
            case "off":
                return Policy(most=0)
            case _:
                return Policy()


class Thrift:
    """What passes cost, and have wasted."""

    def __init__(self, price: float, *, row_share: float) -> None:
        """
        Args:
            price: As of `Policy`.
            row_share: As of `StaticShape.cost`.
        """
        self._price = price
        self._row_share = row_share
        self._wasted: defaultdict[StaticShape, float] = defaultdict(float)
        """Since its last recording, by passes of each shape that is not recorded."""

    def cheapest(self, recorded: Iterable[StaticShape], need: Need) -> StaticShape | None:
        """The recorded shape that a pass takes; None: none of them holds it."""
        fitting = [shape for shape in recorded if shape.holds(need)]
        return min(fitting, key=self._cost, default=None)

    def pays(self, shape: StaticShape, held: StaticShape | None) -> bool:
        """Counts a pass of a shape that is not recorded; whether a recording would have paid.

        Args:
            shape: Its own shape.
            held: What it takes instead; None: it is run by itself.
        """
        own = self._cost(shape)
        taken = BY_ITSELF * own if held is None else self._cost(held)
        self._wasted[shape] += max(taken - own, 0.0)
        if self._wasted[shape] < self._price:
            return False
        self._wasted[shape] = 0.0
        return True

    def first(self, shape: StaticShape, capacity: int) -> StaticShape:
        """What is recorded where nothing holds a shape: one that serves others, too, unless that is too dear.

        Args:
            shape: Of the pass.
            capacity: Rows of a slot.
        """
        cover = cover_of(shape, capacity=capacity)
        return shape if self._cost(cover) - self._cost(shape) >= self._price else cover

    def _cost(self, shape: StaticShape) -> float:
        return shape.cost(self._row_share)
