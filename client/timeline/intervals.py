"""Arithmetic with times: where something ran, where two things ran, and whose time each moment was. Pure.

Spans are pairs of microseconds, in order, without overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.client.timeline.timeline_model import Slice

Span = tuple[float, float]
"""From and to, in microseconds."""


def merged(times: Iterable[Span]) -> list[Span]:
    """The times in order, overlaps merged, empty ones left out."""
    found: list[Span] = []
    for start, end in sorted(times):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def spans(slices: Iterable[Slice]) -> list[Span]:
    """When something ran."""
    return merged((one.start_us, one.end_us) for one in slices)


def total_us(times: Iterable[Span]) -> float:
    """How long they are together."""
    return sum(end - start for start, end in times)


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The times that both hold."""
    found: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The times of `one` that `other` does not hold."""
    found: list[Span] = []
    j = 0
    for start, end in one:
        while j < len(other) and other[j][1] <= start:
            j += 1
        k, at = j, start
        while k < len(other) and other[k][0] < end:
            if other[k][0] > at:
                found.append((at, other[k][0]))
            at = max(at, other[k][1])
            k += 1
        if at < end:
            found.append((at, end))
    return found


def partition(
    start_us: float, end_us: float, layers: Iterable[tuple[str, Iterable[Span]]], *, rest: str
) -> dict[str, float]:
    """Gives every moment to the first layer that holds it.

    Args:
        start_us: From here.
        end_us: To here.
        layers: Names and times; a name may come again.
        rest: Gets what no layer holds.

    Returns:
        Microseconds by name. They add up to the whole.
    """
    free: list[Span] = [(start_us, end_us)] if end_us > start_us else []
    shares: dict[str, float] = {}
    for name, times in layers:
        held = merged(times)
        shares[name] = shares.get(name, 0.0) + total_us(common(free, held))
        free = without(free, held)
    shares[rest] = shares.get(rest, 0.0) + total_us(free)
    return shares
