"""Small plots as SVG text: lines and points over two axes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

NAMESPACE = "http://www.w3.org/2000/svg"

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 150, 34, 46
"""Margins; the legend is in the right one."""

COLOURS = ("#0b6e99", "#c4501b", "#3f7d20", "#7b4ea8", "#8a6d00", "#5f6b73")
"""Told apart also by those who see red and green alike, by their lightness."""

_DASHES = ' stroke-dasharray="5 4"'

NUM_TICKS = 5
"""About so many on an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a plot."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False
    """For what was computed, not measured."""

    has_line: bool = True
    """False: points alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One direction."""

    label: str
    names: Sequence[str] | None = None
    """For values 0, 1, 2, ... that stand for named things; None: numbers."""

    least: float | None = None
    greatest: float | None = None


def plot(title: str, series: Sequence[Series], *, x: Axis, y: Axis) -> str:
    """A plot.

    Raises:
        ValueError: There is no point.
    """
    points = [point for line in series for point in line.points]
    if not points:
        raise ValueError(f"nothing to plot in {title!r}: no series has a point")
    across = _Scale.of(x, [point[0] for point in points], start=LEFT, end=WIDTH - RIGHT)
    up = _Scale.of(y, [point[1] for point in points], start=HEIGHT - BOTTOM, end=TOP)
    parts = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 18, title, size=13),
        *_grid(x, y, across, up),
    ]
    for number, line in enumerate(series):
        parts.extend(_draw(line, COLOURS[number % len(COLOURS)], across, up))
        parts.extend(_legend(line, COLOURS[number % len(COLOURS)], number))
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to places on the paper."""

    least: float
    greatest: float
    start: float
    end: float

    @classmethod
    def of(cls, axis: Axis, values: Sequence[float], *, start: float, end: float) -> _Scale:
        least = min(values) if axis.least is None else axis.least
        greatest = max(values) if axis.greatest is None else axis.greatest
        if axis.names is None and axis.greatest is None:
            greatest += 0.06 * (greatest - least)
        return cls(least, greatest if greatest > least else least + 1.0, start, end)

    def __call__(self, value: float) -> float:
        share = (value - self.least) / (self.greatest - self.least)
        return self.start + share * (self.end - self.start)


def ticks(least: float, greatest: float) -> list[float]:
    """Round numbers within the bounds, about `NUM_TICKS` of them."""
    raw = (greatest - least) / NUM_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = math.ceil(least / step - 1e-9)
    last = math.floor(greatest / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _grid(x: Axis, y: Axis, across: _Scale, up: _Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in ticks(up.least, up.greatest):
        place = up(value)
        parts.append(
            f'<line x1="{LEFT}" y1="{place:.1f}" x2="{right}" y2="{place:.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(LEFT - 6, place + 4, f"{value:g}", anchor="end"))
    named = (
        [(float(number), name) for number, name in enumerate(x.names)]
        if x.names is not None
        else [(value, f"{value:g}") for value in ticks(across.least, across.greatest)]
    )
    for value, name in named:
        parts.append(_text(across(value), bottom + 16, name, anchor="middle"))
    parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#555"/>')
    parts.append(_text((LEFT + right) / 2, HEIGHT - 10, x.label, anchor="middle"))
    middle = (TOP + bottom) / 2
    turned = f'transform="rotate(-90 14 {middle:.0f})"'
    parts.append(_text(14, middle, y.label, anchor="middle", extra=turned))
    return parts


def _draw(line: Series, colour: str, across: _Scale, up: _Scale) -> list[str]:
    places = [(across(x), up(y)) for x, y in line.points]
    parts = []
    if line.has_line and len(places) > 1:
        stroke = f'stroke="{colour}" stroke-width="2"' + (_DASHES if line.is_dashed else "")
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" {stroke}/>')
    if not line.is_dashed:
        parts.extend(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
        )
    return parts


def _legend(line: Series, colour: str, number: int) -> list[str]:
    left, middle = WIDTH - RIGHT + 10, TOP + 8 + 18 * number
    stroke = f'stroke="{colour}" stroke-width="2"' + (_DASHES if line.is_dashed else "")
    mark = (
        f'<line x1="{left}" y1="{middle}" x2="{left + 20}" y2="{middle}" {stroke}/>'
        if line.has_line
        else f'<circle cx="{left + 10}" cy="{middle}" r="3" fill="{colour}"/>'
    )
    return [mark, _text(left + 26, middle + 4, line.name)]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, extra: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>'
        f"{escape(text)}</text>"
    )
