"""The suite's rows as Markdown, one function for each block of `docs/verifiers.md` and its appendix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.report.captions import said_of

Rows = Sequence[dict[str, Any]]

ESTIMATE_A_TOKEN = 6
ESTIMATE_TOKENS = 64
"""The estimate of a message: for each row 64 tokens of 6 bytes, a 4-byte id and a 2-byte probability each."""

PAIR = ("demo:target", "demo:draft")
"""Whose rows the page tells; those of other pairs stand beside them in the file."""

SHAPE_NAMES = {"1,1,1,1": "chain of 4", "8,1,1": "`8,1,1`, 8 paths"}
COUPLED = "coupled"


def of_pair(rows: Rows, target: str, draft: str) -> Rows:
    """The rows of a pair of models, and those of no pair."""
    return [row for row in rows if (row["target"], row["draft"]) in ((target, draft), (None, None))]


def rounds(rows: Rows) -> str:
    """Acceptance and tokens per pass of every verifier below the same contexts."""
    found = {row["temperature"]: row["cells"] for row in rows if row["layer"] == "rounds"}
    limits = {row["temperature"]: row["cells"] for row in rows if row["layer"] == "bounds"}
    temperatures = sorted((t for t in found if t > 0.0), reverse=False)
    parts = []
    for shape in _shapes(found[temperatures[0]]) if temperatures else ():
        parts += [_rounds_of(shape, temperatures, found, limits), ""]
    if 0.0 in found:
        parts += [_greedy(found[0.0]), ""]
    return "\n".join([*parts, _caption(rows, "rounds")]) if parts else ""


def _rounds_of(
    shape: str, temperatures: list[float], found: dict[float, Rows], limits: dict[float, Rows]
) -> str:
    head = (
        f"**{_name(shape)}, {_nodes(shape)} candidates a round**\n\n| verifier | "
        + " | ".join(f"T {t:g}: a node | a round | tokens per pass" for t in temperatures)
        + " |\n|---|"
        + "---|---|---|" * len(temperatures)
    )
    keys = dict.fromkeys(
        (cell["verifier"], cell["tree"])
        for cell in found[temperatures[0]]
        if cell["shape"] == shape
    )
    by_key = {
        t: {(c["verifier"], c["tree"]): c for c in found[t] if c["shape"] == shape}
        for t in temperatures
    }
    first = by_key[temperatures[0]]
    best = {t: max(c["tokens_per_pass"] for c in by_key[t].values()) for t in temperatures}
    # On a chain several verifiers are one algorithm: what gave the same is one line.
    names: dict[str, list[str]] = {}
    for key in sorted(keys, key=lambda k: -first[k]["tokens_per_pass"]):
        cells = []
        for t in temperatures:
            cell = by_key[t][key]
            tokens = f"{cell['tokens_per_pass']:.2f} ± {cell['tokens_per_pass_error']:.2f}"
            if cell["tokens_per_pass"] == best[t]:
                tokens = f"**{tokens}**"
            cells.append(
                f"{cell['acceptance']:.3f} ± {cell['acceptance_error']:.3f} "
                f"| {cell['tokens_per_pass'] - 1.0:.2f} | {tokens}"
            )
        names.setdefault(" | ".join(cells), []).append(_label(*key))
    lines = [f"| {', '.join(labels)} | {text} |" for text, labels in names.items()]
    for siblings in ("independent", "distinct"):
        values = [
            next(
                (
                    c["tokens_per_pass"]
                    for c in limits.get(t, [])
                    if c["shape"] == shape and c["siblings"] == siblings
                ),
                None,
            )
            for t in temperatures
        ]
        known = [value for value in values if value is not None]
        if len(known) == len(temperatures):
            is_chain = shape.replace(",", "").strip("1") == ""
            name = "any verifier of a chain" if is_chain else f"any verifier of {siblings} siblings"
            cells = [f"| | at most {value - 1.0:.2f} | at most {value:.2f} " for value in known]
            lines.append(f"| *{name}* " + "".join(cells) + "|")
    return "\n".join([head, *lines])


def _greedy(cells: Rows) -> str:
    head = (
        "**Temperature 0**\n\n| tree | candidates | a node | tokens per pass |\n|---|---|---|---|"
    )
    lines = []
    for cell in sorted(cells, key=lambda c: (_nodes(c["shape"]), c["tree"])):
        is_own = cell["tree"] == "own"
        name = "`coupled`, own tree" if is_own else f"every verifier, {_name(cell['shape'])}"
        lines.append(
            f"| {name} | {_nodes(cell['shape'])} | {cell['acceptance']:.3f} "
            f"| {cell['tokens_per_pass']:.2f} ± {cell['tokens_per_pass_error']:.2f} |"
        )
    return "\n".join([head, *lines])


def nodes(rows: Rows) -> str:
    """Acceptance at a single node beside the optimum."""
    parts = []
    for row in _of(rows, "nodes"):
        counts = row["cells"][0]["candidates"]
        head = (
            f"**Temperature {row['temperature']:g}**\n\n| verifier | "
            + " | ".join(f"{k} candidate{'s' * (k > 1)}" for k in counts)
            + " |\n|---|"
            + "---|" * len(counts)
        )
        lines = [
            f"| {_node_name(cell['verifier'])} | "
            + " | ".join(
                f"{value:.3f} ± {error:.3f}"
                for value, error in zip(cell["acceptance"], cell["errors"], strict=True)
            )
            + " |"
            for cell in row["cells"]
        ]
        parts += ["\n".join([head, *lines]), ""]
    return "\n".join([*parts, _caption(rows, "nodes")]) if parts else ""


def cuts(rows: Rows) -> str:
    """What cut rows cost of the acceptance that whole ones have."""
    parts = []
    for row in _of(rows, "cuts"):
        methods = list(row["cells"][0]["lost"])
        head = (
            f"**Temperature {row['temperature']:g}**\n\n| tokens of a row | tokens kept | "
            + " | ".join(f"`{name}`" for name in methods)
            + " |\n|---|---|"
            + "---|" * len(methods)
        )
        lines = [
            f"| {cell['cut']} | {cell['tokens']:.0f} | "
            + " | ".join(_percent(*cell["lost"][name]) for name in methods)
            + " |"
            for cell in row["cells"]
        ]
        parts += ["\n".join([head, *lines]), ""]
    whole = _lost_in_rounds(rows)
    return (
        "\n".join([*parts, *([whole, ""] if whole else []), _caption(rows, "cuts")])
        if parts
        else ""
    )


def _lost_in_rounds(rows: Rows) -> str:
    found = {
        row["temperature"]: {(c["shape"], c["verifier"]): c for c in row["cells"] if "lost" in c}
        for row in _of(rows, "rounds")
    }
    found = {t: cells for t, cells in found.items() if cells}
    if not found:
        return ""
    temperatures = sorted(found)
    head = (
        "**In whole rounds**, acceptance a node that trees from rows as sent lose against trees from whole rows\n\n"
        "| tree | verifier | "
        + " | ".join(f"T {t:g}" for t in temperatures)
        + " |\n|---|---|"
        + "---|" * len(temperatures)
    )
    lines = [
        f"| {_name(shape)} | `{verifier}` | "
        + " | ".join(
            _percent(found[t][shape, verifier]["lost"], found[t][shape, verifier]["lost_error"])
            for t in temperatures
        )
        + " |"
        for shape, verifier in found[temperatures[0]]
    ]
    return "\n".join([head, *lines])


def sizes(rows: Rows) -> str:
    """Bytes of a round's message beside the estimate."""
    found = {row["temperature"]: row["cells"] for row in _of(rows, "bytes")}
    temperatures = sorted(found)
    if not temperatures:
        return ""
    head = (
        "| tree | siblings | rows | estimate, bytes | "
        + " | ".join(f"T {t:g}: tokens a row | bytes | of the estimate" for t in temperatures)
        + " |\n|---|---|---|---|"
        + "---|---|---|" * len(temperatures)
    )
    lines = []
    for cell in found[temperatures[0]]:
        key = (cell["shape"], cell["siblings"])
        estimate = _rows(cell["shape"]) * ESTIMATE_TOKENS * ESTIMATE_A_TOKEN
        cells = []
        for t in temperatures:
            other = next(c for c in found[t] if (c["shape"], c["siblings"]) == key)
            cells.append(
                f"{other['tokens_a_row']:.0f} | {other['bytes']:.0f} | {other['bytes'] / estimate:.2f}"
            )
        is_chain = _nodes(cell["shape"]) == len(cell["shape"].split(","))
        siblings = "-" if is_chain else cell["siblings"]
        lines.append(
            f"| {_name(cell['shape'])} | {siblings} | {_rows(cell['shape'])} | {estimate} | "
            + " | ".join(cells)
            + " |"
        )
    return "\n".join([head, *lines, "", _caption(rows, "bytes")])


def served(rows: Rows) -> str:
    """Every verifier through the running service."""
    parts: list[str] = []
    for layer, title in (
        ("service, in lock-step", "In lock-step"),
        ("service", "Drafting ahead, each at its own pace"),
    ):
        for row in _of(rows, layer):
            parts += [f"**{title}, temperature {row['temperature']:g}**\n", _served(row), ""]
    if not parts:
        return ""
    through = [row for row in rows if row["layer"].startswith("service")]
    first = through[0]
    caption = (
        f"{first['prompts']} prompts of every category, {first['max_tokens']} tokens each, one after another; "
        f"{said_of(through, _machine)}."
    )
    return "\n".join([*parts, caption])


def _served(row: dict[str, Any]) -> str:
    head = (
        "| verifier | tree | tokens per pass | of passes with candidates | share of these | acceptance a node "
        "| bytes a round |\n|---|---|---|---|---|---|---|"
    )
    lines = []
    for cell in row["cells"]:
        rest = "- | 0 % | - | -"
        if cell["rounds"]:
            rest = (
                f"{cell['tokens_per_round']:.2f} | {cell['rounds'] / cell['passes']:.0%} "
                f"| {cell['acceptance']:.3f} | {cell['bytes_per_round']:.0f}"
            )
        is_own = cell["verifier"] in (COUPLED, "exact_match")
        tree = f"own, {_nodes(cell['shape'])}" if is_own else _name(cell["shape"])
        lines.append(
            f"| `{cell['verifier']}` | {tree} | {cell['tokens_per_pass']:.2f} ± "
            f"{cell['tokens_per_pass_error']:.2f} | {rest} |"
        )
    return "\n".join([head, *lines])


def cost(rows: Rows) -> str:
    """Milliseconds of a verdict by verifier, tree and vocabulary."""
    (row,) = _of(rows, "cost") or (None,)
    if row is None:
        return ""
    cells = {(c["shape"], c["verifier"], c["vocabulary"]): c for c in row["cells"]}
    vocabularies = sorted({vocabulary for _, _, vocabulary in cells})
    head = (
        "| tree | candidates | verifier | "
        + " | ".join(f"{vocabulary:,} tokens" for vocabulary in vocabularies)
        + " |\n|---|---|---|"
        + "---|" * len(vocabularies)
    )
    lines = []
    for shape, verifier in dict.fromkeys((shape, verifier) for shape, verifier, _ in cells):
        found = [cells[shape, verifier, vocabulary] for vocabulary in vocabularies]
        nodes_ = found[0]["nodes"]
        name = f"chain of {nodes_}" if _rows(shape) == nodes_ else f"`{shape}`"
        times = [f"{cell['ms']:.1f} (at most {cell['ms_most']:.1f})" for cell in found]
        lines.append(f"| {name} | {nodes_} | `{verifier}` | " + " | ".join(times) + " |")
    return "\n".join([head, *lines, "", f"{said_of([row], _machine)}."])


def toys(rows: Rows) -> str:
    """Published toy figures beside ours."""
    cells = [cell for row in _of(rows, "toys") for cell in row["cells"]]
    if not cells:
        return ""
    head = "| source | figure | published | ours | difference |\n|---|---|---|---|---|"
    lines = [
        f"| {cell['paper']} | {cell['what']} | {cell['published']:.7g} | {cell['ours']:.7g} "
        f"| {abs(cell['ours'] - cell['published']):.0e} |"
        for cell in cells
    ]
    return "\n".join([head, *lines])


def _of_record(tell: Callable[[Rows], str]) -> Callable[[Rows], str]:
    return lambda rows: tell(of_pair(rows, *PAIR))


BLOCKS = {
    "verifiers-rounds": _of_record(rounds),
    "verifiers-nodes": _of_record(nodes),
    "verifiers-cost": _of_record(cost),
    "verifiers-cuts": _of_record(cuts),
    "verifiers-sizes": _of_record(sizes),
    "verifiers-service": _of_record(served),
    "verifiers-toys": _of_record(toys),
}
"""Blocks by the name in the pages' markers."""


def _of(rows: Rows, layer: str) -> Rows:
    return sorted(
        (row for row in rows if row["layer"] == layer), key=lambda row: row["temperature"] or 0.0
    )


def _shapes(cells: Rows) -> list[str]:
    return sorted(dict.fromkeys(cell["shape"] for cell in cells), key=_nodes)


def _nodes(shape: str) -> int:
    size = total = 1
    for part in shape.split(","):
        size *= int(part)
        total += size
    return total - 1


def _rows(shape: str) -> int:
    return 1 + _nodes(shape.rpartition(",")[0])


def _name(shape: str) -> str:
    return SHAPE_NAMES.get(shape, f"`{shape}`")


def _label(verifier: str, tree: str) -> str:
    return f"`{verifier}`, own tree" if tree == "own" else f"`{verifier}`"


NODE_NAMES = {
    "exact_match": "`exact_match`, most probable tokens",
    "exact_match, drawn": "`exact_match`, independent draws",
    "mcsd_with_replacement": "`mcsd_with_replacement`, `specinfer` (1: all that test a chain)",
    "mcsd_without_replacement": "`mcsd_without_replacement`, `traversal`",
    "optimum, independent": "*optimum, independent candidates*",
    "optimum, distinct": "*optimum, distinct candidates*",
}


def _node_name(name: str) -> str:
    return NODE_NAMES.get(name, f"`{name}`")


def _percent(value: float, error: float) -> str:
    return f"{100.0 * value:.2f} ± {100.0 * error:.2f} %"


def _caption(rows: Rows, layer: str) -> str:
    of_layer = _of(rows, layer)
    first = of_layer[0]
    return (
        f"{first['contexts']} contexts of {first['prompts']} prompts of every category at each temperature; errors are "
        f"standard errors from prompt to prompt; {said_of(of_layer, _machine)}."
    )


def _machine(row: dict[str, Any]) -> str:
    machine = row["machine"]
    return f"torch {machine['torch']}, commit {machine['commit']}, {row['date']}"
