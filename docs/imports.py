"""Which folder of the product imports which: read from the sources, also from inside functions."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("actors", "client", "cluster")
PACKAGE = "outrider."

Graph = Mapping[str, set[str]]
"""For each node those that it imports."""


def sources() -> list[Path]:
    """Every file of the product that people write, by its path from the root."""
    found = (file for top in TOPS for file in (ROOT / top).rglob("*.py"))
    return sorted(file.relative_to(ROOT) for file in found)


def imported(file: Path) -> Iterator[Path]:
    """The product's files that a file imports; those for types only do not count."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module or id(node) in for_types:
            continue
        if not node.module.startswith(PACKAGE):
            continue
        base = Path(*node.module.removeprefix(PACKAGE).split("."))
        for alias in node.names:
            for path in (base / f"{alias.name}.py", base / alias.name / "__init__.py"):
                if (ROOT / path).exists():
                    yield path
                    break
            else:
                one = base.with_suffix(".py")
                path = one if (ROOT / one).exists() else base / "__init__.py"
                if (ROOT / path).exists():
                    yield path


def folders() -> Graph:
    """Folders, and the other folders that their files import."""
    graph: dict[str, set[str]] = {file.parent.as_posix(): set() for file in sources()}
    for file in sources():
        for other in imported(file):
            if other.parent != file.parent:
                graph[file.parent.as_posix()].add(other.parent.as_posix())
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that reach each other."""
    reached = {node: reachable(graph, node) for node in graph}
    found: list[list[str]] = []
    for node in sorted(graph):
        group = sorted(other for other in reached[node] if node in reached.get(other, ()))
        if len(group) > 1 and group not in found:
            found.append(group)
    return found


def reachable(graph: Graph, start: str) -> set[str]:
    """What a node imports, also through others."""
    found: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += graph.get(node, ())
    return found


def reduced(graph: Graph) -> Graph:
    """The same order with the fewest arrows: those that follow from others are left out."""
    return {
        node: {
            other
            for other in others
            if not any(other in reachable(graph, third) for third in others - {other})
        }
        for node, others in graph.items()
    }


def merged(graph: Graph, depth: int = 2) -> Graph:
    """The graph of folders, with those deeper than so many levels counted to the one above."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for folder, others in graph.items():
        top = "/".join(folder.split("/")[:depth])
        found[top] |= {"/".join(other.split("/")[:depth]) for other in others} - {top}
    return found
