"""What the page tells readers to type works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "verifiers.md"


def test_the_example_on_numpy_rows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """One block, which prints the accepted path and the committed tokens."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - the page is ours
    outcome, tree = names["outcome"], names["tree"]
    assert capsys.readouterr().out == f"{outcome.path} {outcome.tokens}\n"
    assert tuple(tree.tokens_N[node] for node in outcome.path) == outcome.tokens[:-1]
    assert outcome.path in {(), (0,), (1,), (0, 2)}
