"""A target that is read and writes in a third of the shipped one's time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.actors.train.cut_target import cut_target

NUM_LAYERS = 6
"""The fewest of which a drafter can read three."""


@pytest.fixture(scope="session")
def small_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, which nobody changes."""
    return cut_target(tmp_path_factory.mktemp("target") / "small-target", NUM_LAYERS)


@pytest.fixture
def tiny_data(tiny_data: Path, small_target: Path) -> Path:
    """The texts; beside them lies `small-target`."""
    tiny_data.with_name("small-target").symlink_to(small_target)
    return tiny_data
