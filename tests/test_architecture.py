"""The tree says what the system is: no circles, small folders, no name twice; and the page that says so is true."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from docs import generate
from docs.imports import ROOT, circles, folders, imported, sources

FEW = 16
"""Files of a folder, `__init__.py` not counted."""


def test_no_circle_among_folders() -> None:
    """What two folders need lies below both."""
    assert circles(folders()) == []


def test_a_circle_is_seen() -> None:
    """The search can find one."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_circle_among_modules() -> None:
    """Nor one that imports inside functions hide."""
    graph = {file.as_posix(): {o.as_posix() for o in imported(file)} for file in sources()}
    # A package's own `__init__` may offer what its modules hold.
    modules = {
        file: {other for other in others if not other.endswith("__init__.py")}
        for file, others in graph.items()
        if not file.endswith("__init__.py")
    }

    assert circles(modules) == []


def test_no_circle_in_bench() -> None:
    """Neither there."""
    files = {path.relative_to(ROOT): path for path in (ROOT / "bench").rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found = graph[name.as_posix()] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench"):
                base = Path(*str(node.module).split("."))
                for alias in node.names:
                    for other in (base / f"{alias.name}.py", base.with_suffix(".py")):
                        if other in files:
                            found.add(other.as_posix())
                            break

    assert circles(graph) == []


def test_folders_are_small() -> None:
    """One concept each."""
    count = Counter(file.parent.as_posix() for file in sources() if file.name != "__init__.py")

    assert {folder: n for folder, n in count.items() if n > FEW} == {}


def test_no_name_twice() -> None:
    """A file or a public class of the product is known by its name alone."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for file in sources():
        if file.name != "__init__.py":
            files[file.name].append(file.as_posix())
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(file.as_posix())

    assert {name: where for name, where in files.items() if len(where) > 1} == {}
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


def test_the_pages_are_current_and_the_imports_allowed() -> None:
    """As `make check` asks."""
    assert generate.forbidden() == []
    for page in sorted(generate.DOCS.glob("*.md")):
        assert page.read_text("utf-8") == generate.filled(page.read_text("utf-8")), page.name


def test_an_import_that_the_page_does_not_allow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail."""
    monkeypatch.setattr(generate, "folders", lambda: {"client": {"actors/engine"}})

    assert generate.forbidden() == [
        "client imports actors/engine, which docs/architecture.md does not allow"
    ]
