"""Processes of a benchmark: they answer, or it is said why they did not."""

from __future__ import annotations

import pytest

from bench.running.child import Child, ChildFailed


def test_a_process_that_ends_is_told_with_its_last_words() -> None:
    """Not with a timeout."""
    with (
        Child("bench.no_such_module") as child,
        pytest.raises(ChildFailed, match="No module named"),
    ):
        child.answer(timeout_s=60.0)
