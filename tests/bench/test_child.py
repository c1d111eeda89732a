"""Processes of a benchmark: they answer, or it is said why they did not."""

from __future__ import annotations

import pytest

from bench.child import Child, ChildFailed
from bench.netns import netem_command


def test_a_process_that_ends_is_told_with_its_last_words() -> None:
    """Not with a timeout."""
    with (
        Child("bench.no_such_module") as child,
        pytest.raises(ChildFailed, match="No module named"),
    ):
        child.answer(timeout_s=60.0)


def test_delay_of_a_link_is_told_in_microseconds() -> None:
    """With room for what is under way."""
    command = " ".join(netem_command("orh1", 0.0125))
    assert command == "tc qdisc replace dev orh1 root netem delay 12500us limit 100000"
