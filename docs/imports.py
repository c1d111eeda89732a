"""Which folder of ours imports which: read from the sources, also from inside functions.

A string that is the name of a module of ours is an import, too: `importlib` is given such, and processes are started by them. So that none is
overlooked, no such name may be put together at run time.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PRODUCT = ("actors", "client", "cluster")
"""Folders of the package `outrider`."""

TOPS = (*PRODUCT, "bench")
PACKAGES = {**{f"outrider.{top}": top for top in PRODUCT}, "bench": "bench"}
"""Where the modules of a package lie."""

TYPES_ONLY = "TYPE_CHECKING"
"""What guards imports that are for types."""

Graph = Mapping[str, set[str]]
"""For each node those that it imports."""


def sources(tops: tuple[str, ...] = TOPS) -> list[Path]:
    """Every file of some folders that people write, by its path from the root."""
    found = (file for top in tops for file in (ROOT / top).rglob("*.py"))
    return sorted(file.relative_to(ROOT) for file in found)


def module_file(name: str) -> Path | None:
    """The file of a module of ours, by its path from the root; None: it is none."""
    for package, top in PACKAGES.items():
        if name == package or name.startswith(package + "."):
            base = Path(top, *name.removeprefix(package).split(".")[1:])
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if (ROOT / path).exists():
                    return path
    return None


def imported(file: Path) -> Iterator[Path]:
    """The files of ours that a file imports; those for types only do not count."""
    for names in _named((ROOT / file).read_text(encoding="utf-8")):
        if (found := next(filter(None, map(module_file, names)), None)) is not None:
            yield found


@cache
def _named(source: str) -> tuple[tuple[str, ...], ...]:
    """What a source imports: for each, the names of modules that it may be, the likeliest first."""
    tree = ast.parse(source)
    for_types = {
        id(inner)
        for node in (ast.walk(tree) if TYPES_ONLY in source else ())
        if isinstance(node, ast.If) and TYPES_ONLY in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    return tuple(
        names
        for node in ast.walk(tree)
        if id(node) not in for_types
        for names in _names_in(node)
        if any(f"{names[0]}.".startswith(f"{package}.") for package in PACKAGES)
    )


def _names_in(node: ast.AST) -> Iterator[tuple[str, ...]]:
    match node:
        case ast.ImportFrom(module=str(module), names=names):
            for alias in names:
                yield f"{module}.{alias.name}", module
        case ast.Import(names=names):
            for alias in names:
                yield (alias.name,)
        case ast.Constant(value=str(name)) if "." in name:
            yield (name,)


def unfinished() -> list[str]:
    """Strings that begin the name of a module of ours and leave the rest to be put in, by file and line."""
    return [
        f"{file}:{line}"
        for file in sources()
        for line in _unfinished((ROOT / file).read_text(encoding="utf-8"))
    ]


@cache
def _unfinished(source: str) -> tuple[int, ...]:
    """Lines of them in one source."""
    begins = tuple(f"{package}." for package in ("outrider", *PACKAGES))
    return tuple(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(begins)
        and node.value.endswith(".")
    )


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
