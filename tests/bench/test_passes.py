"""Passes are read from the trace of the right stretch of time."""

from __future__ import annotations

import pytest

from bench.passes import passes
from outrider.actors.trace import TraceRecord


def _record(track: str, name: str, start: float, took: float, **args: int) -> TraceRecord:
    return TraceRecord(track=track, name=name, start_us=start, duration_us=took, args={**args})


RECORDS = [
    _record("target", "prefill", 0.0, 100.0, rows=9, nodes=0),
    _record("target", "verify", 100.0, 10.0, rows=1, nodes=0),
    _record("target", "verify", 120.0, 20.0, rows=1, nodes=0),
    _record("target", "verify", 150.0, 30.0, rows=5, nodes=4),
    _record("target", "verify", 180.0, 20.0, rows=3, nodes=2),
    _record("draft", "prefill", 100.0, 90.0),
    _record("draft", "draft", 110.0, 2.0),
    _record("draft", "draft", 120.0, 4.0),
    _record("draft", "draft", 130.0, 60.0),
    _record("other", "draft", 130.0, 1.0),
    _record("target", "verify", 5000.0, 500.0, rows=1, nodes=0),
]


def test_passes_of_a_stretch() -> None:
    """Means of target passes by kind, the median of the drafter's own draft passes, the busy share."""
    found = passes(RECORDS, drafter="draft", start_us=100.0, end_us=1000.0)
    assert found.plain_s == pytest.approx(15e-6)
    assert found.tree_s == pytest.approx(25e-6)
    assert found.tree_nodes == pytest.approx(3.0)
    assert (found.draft_s, found.num_drafts) == (pytest.approx(4e-6), 3)
    assert found.busy == pytest.approx(80.0 / 100.0)


def test_nothing_happened() -> None:
    """An empty stretch has no passes and is idle."""
    found = passes(RECORDS, drafter="draft", start_us=2000.0, end_us=3000.0)
    assert (found.plain_s, found.tree_s, found.draft_s, found.busy) == (0.0, 0.0, 0.0, 0.0)
