"""The tree says what the system is: no circles, small folders, no name twice; and the pages that say so are true."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from docs import generate
from docs import imports as tree
from docs.imports import PRODUCT, ROOT, circles, folders, imported, merged, sources

FEW = 16
"""Files of a folder, `__init__.py` not counted."""


LEVELS = 3
"""Of folders: actors, client or cluster, and two below."""


def test_no_circle_among_folders() -> None:
    """What two folders need lies below both, at every level."""
    graph = folders()
    for depth in (1, 2, 3, 4):
        assert circles(merged(graph, depth)) == []


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


def test_folders_are_small() -> None:
    """One concept each."""
    count = Counter(
        file.parent.as_posix() for file in sources(PRODUCT) if file.name != "__init__.py"
    )

    assert {folder: n for folder, n in count.items() if n > FEW} == {}
    assert {folder for folder in count if len(folder.split("/")) > LEVELS} == set()


def test_no_name_twice() -> None:
    """A file or a public class of the product is known by its name alone."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for file in sources(PRODUCT):
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


STATIC = "from outrider.actors.low.model import run"
NAMED = 'importlib.import_module("outrider.actors.low.model")'
TYPES = f"if TYPE_CHECKING:\n    {STATIC}"


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        ({"client/tool.py": STATIC}, ["client imports actors/low, which docs/folders.md does not"]),
        ({"client/tool.py": NAMED}, ["client imports actors/low, which docs/folders.md does not"]),
        ({"client/tool.py": TYPES}, []),
        ({"client/tool.py": '"""As outrider.actors.low.model does."""'}, []),
        ({"bench/up/a.py": STATIC}, []),
        (
            {"client/tool.py": 'importlib.import_module(f"outrider.actors.{name}")'},
            ["client/tool.py:1 puts the name of a module together"],
        ),
        (
            {"bench/up/a.py": "from bench.down import b", "bench/down/b.py": 'X = "bench.up.a"'},
            ["bench/down imports bench/up, which", "bench/down, bench/up import each other"],
        ),
        (
            {
                "client/up/a.py": 'X = "outrider.cluster.up.a"',
                "cluster/up/a.py": "import outrider.client.down.b",
                "client/down/b.py": "",
            },
            ["client, cluster import each other"],
        ),
    ],
)
def test_wrong_imports_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], problems: list[str]
) -> None:
    """Those that the page does not allow, said outright or by a name; circles at whatever level, of benchmarks too; names made at run time."""
    for name, content in {**files, "actors/low/model.py": ""}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    page = tmp_path / "folders.md"
    page.write_text(
        "| `bench/up` | x | `actors/low`, `bench/down` |\n"
        "| `client/up` | x | `cluster/up` |\n| `cluster/up` | x | `client/down` |\n"
    )
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "FOLDERS", page)
    found = generate.forbidden()
    assert len(found) == len(problems)
    for problem, said in zip(problems, found, strict=True):
        assert said.startswith(problem)
