"""Writes what follows from the sources: the page of the architecture, the tables of methods, the reference loop.

`python -m docs.generate` writes, `--check` refuses pages that are out of date, imports that docs/folders.md does not allow, folders that import
each other, and names of modules that only a run would show.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable

from docs.imports import ROOT, Graph, circles, folders, merged, reduced, unfinished
from outrider.actors.draft.choice.drafter_registry import DRAFTERS, served_verifiers
from outrider.actors.draft.on_states.known_formats import FORMATS
from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.train.choice.trainer_registry import TRAINERS

DOCS = ROOT / "docs"
FOLDERS = DOCS / "folders.md"
"""What each folder may import."""


def purpose(folder: str) -> str:
    """The first sentence of a folder's `__init__.py`."""
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text("utf-8"))) or ""
    first = text.split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.)\s", first)[0]


def folder_table(graph: Graph) -> str:
    """One row a folder: what it is, and the only other folders that it imports."""
    rows = ["| folder | what it is | may import |", "|---|---|---|"]
    for folder in sorted(graph):
        others = ", ".join(f"`{other}`" for other in sorted(graph[folder])) or "-"
        rows.append(f"| `{folder}` | {purpose(folder)} | {others} |")
    return "\n".join(rows)


def drawing() -> str:
    """Folders two levels deep, arrows to what they import, as far as it does not follow from other arrows."""
    graph = reduced(merged(folders()))
    lines = ["```mermaid", "flowchart TD"]
    for top in sorted({node.split("/")[0] for node in graph}):
        nodes = sorted(node for node in graph if node.split("/")[0] == top)
        lines += [f"  subgraph in_{top}[{top}]", f"    {_joined(map(_box, nodes))}", "  end"]
    for node in sorted(graph):
        if graph[node]:
            lines.append(f"  {_id(node)} --> {_joined(map(_id, sorted(graph[node])))}")
    return "\n".join([*lines, "```"])


def _box(node: str) -> str:
    top, _, name = node.partition("/")
    return f"{_id(node)}[{name or f'files of {top}'}]"


def _joined(parts: Iterable[str]) -> str:
    return " & ".join(parts)


def _id(node: str) -> str:
    return node.replace("/", "_")


def verifier_table() -> str:
    """All verifiers."""
    rows = ["| verifier | tree | siblings | several drafters | lossless | when | source |"]
    rows.append("|---|---|---|---|---|---|---|")
    for name, spec in VERIFIERS.items():
        tree = (
            "grows" if not spec.needs_frozen_tree else "chain" if spec.is_chain_only else "frozen"
        )
        drawn = " or ".join(sorted(spec.replacements))
        siblings = "any" if tree == "grows" else "-" if tree == "chain" else f"{drawn} replacement"
        rows.append(
            f"| `{name}` | {tree} | {siblings} | {'yes' if spec.mixes_drafters else 'no'} | "
            f"{'yes' if spec.is_lossless else '**no**'} | {spec.summary} | {spec.source} |"
        )
    return "\n".join(rows)


def selector_table() -> str:
    """All selectors."""
    rows = ["| selector | at work, where nobody says | options | when | source |"]
    rows.append("|---|---|---|---|---|")
    for name, spec in SELECTORS.items():
        options = ", ".join(f"`{key}` ({one.default:g})" for key, one in spec.options.items())
        rows.append(
            f"| `{name}` | {spec.at_work or 'all'} | {options or '-'} | {spec.summary} | {spec.source or '-'} |"
        )
    return "\n".join(rows)


def drafter_table() -> str:
    """All drafting methods."""
    rows = ["| method | model | verifiers | options | when | source |", "|---|---|---|---|---|---|"]
    for name, spec in DRAFTERS.items():
        served = (
            "all" if spec.gives_probabilities else ", ".join(map(_code, served_verifiers(spec)))
        )
        options = ", ".join(map(_code, spec.options.__dataclass_fields__)) or "-"
        model = "needed" if spec.needs_model else "none"
        rows.append(
            f"| `{name}` | {model} | {served} | {options} | {spec.summary} | {spec.source or '-'} |"
        )
    return "\n".join(rows)


def format_table() -> str:
    """All formats of draft checkpoints of other projects."""
    rows = ["| format | told by | read by |", "|---|---|---|"]
    for name, spec in FORMATS.items():
        methods = [one for one, method in DRAFTERS.items() if spec.model_type in method.model_types]
        rows.append(
            f"| `{name}`: {spec.title} | {spec.told_by} | {', '.join(map(_code, methods))} |"
        )
    return "\n".join(rows)


def trainer_table() -> str:
    """All trainers."""
    rows = ["| trainer | learns from | what it makes | source |", "|---|---|---|---|"]
    for name, spec in TRAINERS.items():
        needs = ", ".join(sorted(spec.needs))
        rows.append(f"| `{name}` | {needs} | {spec.summary} | {spec.source or '-'} |")
    return "\n".join(rows)


def reference_loop() -> str:
    """The function of `actors/reference.py` that is the whole algorithm, without its docstring."""
    text = (ROOT / "actors" / "reference.py").read_text("utf-8")
    (loop,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == "decode"
    )
    said, end = loop.body[0], loop.end_lineno
    lines = text.splitlines()
    code = [*lines[loop.lineno - 1 : said.lineno - 1], *lines[said.end_lineno : end]]
    return "\n".join(["```python", *code, "```"])


def _code(text: str) -> str:
    return f"`{text}`"


BLOCKS = {
    "layout:drawing": drawing,
    "layout:upper": lambda: folder_table(merged(folders())),
    "layout:folders": lambda: folder_table(folders()),
    "reference:loop": reference_loop,
    "methods:verifiers": verifier_table,
    "methods:drafters": drafter_table,
    "methods:selectors": selector_table,
    "methods:trainers": trainer_table,
    "methods:formats": format_table,
}
"""What stands between the markers of pages, by the markers' name."""


def filled(page: str) -> str:
    """A page with every block made again."""
    for name, make in BLOCKS.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if begin in page:
            before, rest = page.split(begin)
            page = f"{before}{begin}\n{make()}\n{end}{rest.split(end)[1]}"
    return page


def forbidden() -> list[str]:
    """What is wrong with the imports between folders; empty: nothing."""
    allowed: dict[str, set[str]] = {}
    for line in FOLDERS.read_text("utf-8").splitlines():
        if match := re.match(r"\| `([^`]+)` \|.*\| ([^|]*) \|$", line):
            allowed[match[1]] = set(re.findall(r"`([^`]+)`", match[2]))
    graph = folders()
    # Two folders apart may be one at the level above.
    rounds = {tuple(group) for depth in (1, 2, 3, 4) for group in circles(merged(graph, depth))}
    return [
        *(
            f"{folder} imports {other}, which docs/{FOLDERS.name} does not allow"
            for folder, others in graph.items()
            for other in sorted(others - allowed.get(folder, set()))
        ),
        *(f"{', '.join(group)} import each other" for group in sorted(rounds)),
        *(f"{place} puts the name of a module together" for place in unfinished()),
    ]


def main() -> None:
    """Writes, or checks."""
    pages = sorted(DOCS.glob("*.md"))
    if "--check" not in sys.argv:
        for page in pages:
            page.write_text(filled(page.read_text("utf-8")), "utf-8")
        return
    stale = [
        f"docs/{page.name} is out of date: run `make pages`"
        for page in pages
        if page.read_text("utf-8") != filled(page.read_text("utf-8"))
    ]
    if problems := [*forbidden(), *stale]:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
