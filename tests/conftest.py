"""What holds for every test: one arithmetic thread, no deadlines that a busy machine would miss, fair shares of the processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

# Before torch is imported anywhere: tests share the cores with each other and with whatever else runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing is fetched from anywhere. Names of models on a hub stand in configurations and charts.
os.environ["HF_HUB_OFFLINE"] = "1"

# Tests start hundreds of processes, each of which would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that runs tests in the background has them ignore Ctrl-C, and so every process that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracebacks as the service writes them. Those that are for reading, with the values of all variables, take a second each.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

# The same examples each time: a check that fails now and then says little about the change that it is run for.
# `--hypothesis-profile=explore` looks for others.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("same", deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("explore", deadline=None, suppress_health_check=_SLOW)
# For mutants: that a test fails is all that is asked, so no smaller example is looked for.
settings.register_profile(
    "mutants", settings.get_profile("same"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("same")

LONG = ("tests/laws/test_several_drafters.py", "tests/actors/pair/test_frozen_law.py")
"""Where one test takes so long that the tests of each verifier are handed out by themselves; they share its texts."""

SERVICES = {
    "tests/service/": "services",
    "tests/chart/test_run.py": "documents",
    "tests/docs/": "documents",
    "tests/client/batch/test_ray_data.py": "documents",
    "tests/cluster/ray/test_ray_training.py": "documents",
}
"""Where tests start whole services, and the process that runs them, one after the other: so two services run at a time, at most."""


def share_of(nodeid: str) -> str:
    """The tests that one process runs together with this one, when `-n` asks for several: its module's, as a rule."""
    for start, share in SERVICES.items():
        if nodeid.startswith(start):
            return share
    file, _, test = nodeid.partition("::")
    return f"{file}[{test.partition('[')[2]}" if nodeid.startswith(LONG) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out `share_of` tests at a time, the largest shares first and the single tests last."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # no stubs

    class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # of an untyped class
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    return Sharing(config, log)
