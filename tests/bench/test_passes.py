"""What passes took, from a timeline."""

from __future__ import annotations

import pytest

from bench.figures.passes import passes
from outrider.client.timeline.timeline_model import DRAFTING, WORK, Slice, Timeline


def made(process: str, track: str, name: str, start_us: float, us: float, **args: int) -> Slice:
    """A slice."""
    return Slice(
        process=process, track=track, name=name, start_us=start_us, duration_us=us, args=args
    )


def test_passes_by_kind() -> None:
    """Plain passes, tree passes and draft passes apart; waits count as time, not as work."""
    timeline = Timeline(
        slices=(
            made("t", WORK, "prefill", 0, 100, rows=5, nodes=0),
            made("t", WORK, "verify", 100, 10, rows=1, nodes=0),
            made("t", WORK, "waits for candidates", 110, 50),
            made("t", WORK, "verify", 160, 40, rows=5, nodes=4),
            made("d", DRAFTING, "draft", 0, 3),
            made("d", DRAFTING, "draft", 5, 5),
            made("d", DRAFTING, "draft", 15, 100),
            made("other", DRAFTING, "draft", 15, 9),
        )
    )
    found = passes(timeline, drafter="d")
    assert found.plain_s == pytest.approx(10e-6)
    assert found.tree_s == pytest.approx(40e-6)
    assert found.tree_nodes == 4
    assert found.draft_s == pytest.approx(5e-6)
    assert found.num_drafts == 3
    assert found.busy == pytest.approx(150 / 200)


def test_nothing_recorded() -> None:
    """Zeros."""
    found = passes(Timeline(), drafter="d")
    assert (found.plain_s, found.tree_s, found.draft_s, found.busy) == (0.0, 0.0, 0.0, 0.0)
