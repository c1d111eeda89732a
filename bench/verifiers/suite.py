"""The suite: toys, rounds with the two models in this process, and the same verifiers through the running service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.running.asked import among
from bench.verifiers import bounds, cost, cuts, nodes, served
from bench.verifiers.rounds import COMPARED, SHAPES, measure
from bench.verifiers.tally import Tally
from bench.verifiers.toys import toys
from bench.verifiers.trees import Kind

KEYS = ("layer", "temperature", "target", "draft")
"""A row is one layer at one temperature of one pair of models; toys and costs are of no pair."""

PARTS = ("toys", "cost", "rounds", "service")

CHOICES = {"parts": among(PARTS)}
"""What its options may say."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    temperatures: Sequence[float] = (0.8, 1.0, 0.0),
    parts: Sequence[str] = PARTS,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """Rows, each with a list of cells.

    Args:
        target: Folder, hub id or demo:NAME.
        draft: The same.
        temperatures: Of the rounds.
        parts: `toys`, `cost`, `rounds`, `service`.
        is_quick: A handful of contexts and requests.
    """
    pair = {"target": target, "draft": draft}
    no_pair = {"temperature": None, "target": None, "draft": None}
    if "toys" in parts:
        yield {"layer": "toys", **no_pair, "cells": [toy.row() for toy in toys()]}
    if "cost" in parts:
        found = cost.cells((1_000,), num_rounds=3) if is_quick else cost.cells()
        yield {"layer": "cost", **no_pair, "cells": list(found)}
    for temperature in temperatures if "rounds" in parts else ():
        num_prompts, num_contexts = (4, 2) if is_quick else (110, 8)
        tally = measure(
            target=target,
            draft=draft,
            temperature=temperature,
            num_prompts=num_prompts,
            num_contexts=num_contexts,
        )
        for layer, cells in told(tally).items():
            yield {
                "layer": layer,
                "temperature": temperature,
                **pair,
                "prompts": num_prompts,
                "contexts": num_prompts * num_contexts,
                "cells": cells,
            }
    if "service" in parts:
        yield from served.run(
            target=target, draft=draft, temperatures=temperatures, is_quick=is_quick
        )


def told(tally: Tally) -> dict[str, list[dict[str, Any]]]:
    """The cells of each layer that was counted."""
    layers = {
        "rounds": _rounds(tally),
        "bounds": _bounds(tally),
        "nodes": _nodes(tally),
        "cuts": _cuts(tally),
        "bytes": _bytes(tally),
    }
    return {layer: cells for layer, cells in layers.items() if cells}


def _rounds(tally: Tally) -> list[dict[str, Any]]:
    cells = []
    for key in tally.sums:
        match key:
            case ("round" | "whole" as rows, shape, verifier, tree):
                accepted, error = tally.ratio(key)
                node, node_error = tally.ratio(key, 1, 2)
                cells.append(
                    {
                        "rows": "as sent" if rows == "round" else "whole",
                        "shape": shape,
                        "verifier": verifier,
                        "tree": tree,
                        "rounds": tally.count(key),
                        "tokens_per_pass": 1.0 + accepted,
                        "tokens_per_pass_error": error,
                        "acceptance": node,
                        "acceptance_error": node_error,
                    }
                )
    for cell in cells:
        if cell["rows"] == "as sent" and cell["shape"] in [str(shape) for shape in COMPARED]:
            key = (cell["shape"], cell["verifier"], cell["tree"])
            if ("whole", *key) in tally.sums:
                cell["lost"], cell["lost_error"] = tally.relative_loss(
                    ("round", *key), ("whole", *key), 1, 2
                )
    return [cell for cell in cells if cell["rows"] == "as sent"]


def _bounds(tally: Tally) -> list[dict[str, Any]]:
    cells = []
    for shape in SHAPES:
        for kind in (Kind.INDEPENDENT, Kind.DISTINCT):
            if ("all within", str(shape), 0, str(kind)) not in tally.sums:
                continue
            shares = [
                bounds.bound(
                    tally.mean_row(("target within", str(shape), depth)),
                    tally.mean_row(("all within", str(shape), depth, str(kind))),
                )
                for depth in range(shape.depth)
            ]
            cells.append(
                {"shape": str(shape), "siblings": str(kind), "tokens_per_pass": 1.0 + sum(shares)}
            )
    return cells


def _nodes(tally: Tally) -> list[dict[str, Any]]:
    names = dict.fromkeys(key[1] for key in tally.sums if _is(key, "node"))
    return [
        {
            "verifier": name,
            "acceptance": [tally.ratio(("node", name, k))[0] for k in nodes.COUNTS],
            "errors": [tally.ratio(("node", name, k))[1] for k in nodes.COUNTS],
            "candidates": list(nodes.COUNTS),
            "contexts": tally.count(("node", name, nodes.COUNTS[0])),
        }
        for name in names
    ]


def _cuts(tally: Tally) -> list[dict[str, Any]]:
    cells = []
    for name in cuts.CUTS:
        keys = [key for key in tally.sums if _is(key, "cut") and key[1] == name]
        if not keys:
            continue
        losses = {key[2]: _lost(tally, key) for key in keys}
        cells.append({"cut": name, "tokens": tally.ratio(("kept", name))[0], "lost": losses})
    return cells


def _lost(tally: Tally, key: Any) -> tuple[float, float]:
    kept, error = tally.ratio(key, 1, 2)
    return 1.0 - kept, error


def _bytes(tally: Tally) -> list[dict[str, Any]]:
    cells = []
    for key in tally.sums:
        if _is(key, "bytes"):
            size, num_tokens, num_rows, num_nodes = tally.mean_row(key).tolist()
            cells.append(
                {
                    "shape": key[1],
                    "siblings": key[2],
                    "bytes": size,
                    "rows": num_rows,
                    "tokens_a_row": num_tokens / num_rows,
                    "nodes": num_nodes,
                }
            )
    return cells


def _is(key: Any, kind: str) -> bool:
    return isinstance(key, tuple) and key[0] == kind
