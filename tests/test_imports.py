"""Who may import whom: read from the source, so that it also holds for imports inside functions."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SERVING = {"ray", "torch", "transformers", "numpy", "pydantic", "structlog", "msgpack", "psutil"}

FORBIDDEN: dict[str, tuple[str, ...]] = {
    "client": ("outrider.actors", "outrider.cluster", *sorted(SERVING)),
    "actors": ("outrider.client", "outrider.cluster"),
    "actors/speculation": ("outrider.actors", "outrider.v1", "ray", "transformers", "grpc"),
    "actors/engine": (
        "outrider.actors.draft",
        "outrider.actors.target",
        "outrider.v1",
        "ray",
        "grpc",
    ),
    "actors/draft": ("outrider.actors.target",),
    "actors/target": ("outrider.actors.draft",),
    "cluster": ("outrider.client",),
}
"""What the files of a folder may not import, by prefix of the module's name."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "actors/speculation": ("outrider.actors.speculation",),
    "client/batch/ray_data": ("ray", "numpy"),
    "client/cli/demo": ("outrider.cluster",),
}
"""Exceptions, by the start of a file's path: the pure folder may import itself; the command line runs the serving side when
asked to, and a batch its Ray shell; the demonstration starts a service."""

RAY_FREE = (
    "target_server.py",
    "target_worker.py",
    "draft_server.py",
    "draft_worker.py",
    "coordinator.py",
    "supervisor.py",
    "actor_supervisor.py",
    "session.py",
)
"""Files of plain classes, which are tested without Ray."""


def sources() -> list[Path]:
    """Every file of the package that people write."""
    return sorted(
        file for top in ("actors", "client", "cluster") for file in (ROOT / top).rglob("*.py")
    )


@cache
def imports(file: Path) -> list[tuple[int, str]]:
    """Line and module of every import, also those inside functions."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def is_within(module: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a module is one of these or inside one of them."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_dependencies_run_one_way(folder: str) -> None:
    """No file imports what stands above its folder."""
    wrong = []
    for file in sources():
        path = file.relative_to(ROOT).as_posix()
        if not path.startswith(folder + "/"):
            continue
        allowed = tuple(
            module for start, ms in ALLOWED.items() if path.startswith(start) for module in ms
        )
        wrong += [
            f"{path}:{line} imports {module}"
            for line, module in imports(file)
            if is_within(module, FORBIDDEN[folder]) and not is_within(module, allowed)
        ]

    assert wrong == []


def test_plain_classes_know_nothing_of_ray() -> None:
    """What runs inside a Ray shell can be tested without Ray."""
    wrong = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sources()
        if file.name in RAY_FREE
        for line, module in imports(file)
        if is_within(module, ("ray",))
    ]

    assert wrong == []


def test_ray_shells_are_thin() -> None:
    """A shell has no place for logic."""
    shells = [file for file in sources() if file.name.endswith("_actor.py")]

    assert len(shells) == 4
    assert {s.name: n for s in shells if (n := len(s.read_text().splitlines())) > 120} == {}
