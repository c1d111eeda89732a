"""Settings of a coordinator."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from outrider.cluster.config.coordinator_settings import CoordinatorSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"default_max_tokens": 0},
        {"max_waiting": -1},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    """With the name of the setting and its value."""
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name} must be at least .*got {value}"):
        CoordinatorSettings(name="c", incarnation=1, **wrong)


def test_settings_cross_processes() -> None:
    """They survive pickling."""
    settings = CoordinatorSettings(name="c", incarnation=1, drafters=(("d", "h:1"),))
    assert pickle.loads(pickle.dumps(settings)) == settings
