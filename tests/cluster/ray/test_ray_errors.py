"""What is told of Ray's errors."""

from __future__ import annotations

import pytest
from ray.exceptions import RayTaskError

from outrider.cluster.ray.ray_errors import first_line


def test_only_the_first_line_is_told() -> None:
    """Ray's further lines are ids and advice on Ray."""
    assert first_line(RuntimeError("\nThe actor died.\n\tclass_name: A\n")) == "The actor died."


def test_error_without_words_is_named() -> None:
    """An empty message would tell nothing."""
    assert first_line(TimeoutError()) == "TimeoutError"


def test_of_a_traceback_the_last_line_is_told() -> None:
    """What Ray's job server answers when it fails."""
    text = "status 500: Traceback (most recent call last):\n  File x, line 1\nOSError: no head\n"
    assert first_line(RuntimeError(text)) == "status 500: OSError: no head"


@pytest.mark.parametrize("colour", [("\x1b[36m", "\x1b[39m"), ("", "")])
def test_of_a_method_that_raised_its_reason_is_told(colour: tuple[str, str]) -> None:
    """As Ray writes it: which method of which process comes first."""
    begin, end = colour
    text = f"{begin}ray::A.launch(){end} (pid=7, ip=127.0.0.1)\n  File x, line 1\nValueError: no such format"
    assert first_line(RuntimeError(text)) == "ValueError: no such format"
    ray_error = RayTaskError("A.launch()", text, ValueError("no such format"), pid=7, ip="::1")
    assert first_line(ray_error) == "ValueError: no such format"
