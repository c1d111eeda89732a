"""One service for the tests of this folder. They run in the order of their files, each kills what it likes, and the last file ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.conftest import write_config
from tests.service.processes import ServiceProcess, serving, start


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that serves, until the last of these tests ends it."""
    folder = tmp_path_factory.mktemp("service")
    made = start(folder, ["--config", str(write_config(folder)), "--log-level", "info"])
    with serving(made):
        yield made
