"""One service for the tests of this folder. They run in the order of their files, each kills what it likes, and the last file ends it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.conftest import write_config
from tests.service.processes import ServiceProcess, serving, start


@pytest.fixture(scope="session")
def parent() -> Iterator[Path]:
    """Where services of this folder put theirs: a temporary one of our own, with a name short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, parent: Path) -> Iterator[ServiceProcess]:
    """A service that serves, until the last of these tests ends it."""
    folder = tmp_path_factory.mktemp("service")
    arguments = ["--config", str(write_config(folder)), "--log-level", "info"]
    made = start(folder, arguments, TMPDIR=str(parent))
    with serving(made):
        yield made
