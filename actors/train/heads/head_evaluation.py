"""How well a speculator foresees a target, by depth, on texts that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.heads.head_objective import num_positions

CANDIDATES = 4

TREE = 16
"""Nodes of a tree that is measured."""

ROWS_PER_PASS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthReport:
    """Acceptance by depth: of the token at each depth, given that those before it were right.

    Attributes:
        first: Share of positions where the likeliest token is the target's likeliest.
        among_four: Share where the target's likeliest is among the four likeliest.
        overlap: Mean over positions of the sum over tokens of the lesser probability: what speculative sampling accepts at temperature 1.
        tokens_a_pass: Mean over positions of the tokens that a chain of the likeliest tokens yields, the target's own included, where the
            text is the target's greedy one; on other texts the chain is measured on the text as it stands.
        tree_tokens_a_pass: The same of a tree of the `TREE` likeliest nodes; None: not measured.
    """

    first: tuple[float, ...]
    among_four: tuple[float, ...]
    overlap: tuple[float, ...]
    tokens_a_pass: float
    tree_tokens_a_pass: float | None = None


@torch.no_grad()
def acceptance(net: SpeculatorNet, held: HeldOut, head_VD: torch.Tensor) -> DepthReport:
    """Measures a net on some rows."""
    stages = net.config.num_stages
    begin = max(held.first - 1, 0)
    end = num_positions(held.tokens_BL.shape[1], stages)
    sums = torch.zeros(3, stages, dtype=torch.float64)
    chain, count = 0.0, 0
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens_BL = held.tokens_BL[at : at + ROWS_PER_PASS]
        features_BLD = held.features_BLD[at : at + ROWS_PER_PASS]
        states = features_BLD[:, begin:end]
        goes_on = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        for stage in range(stages):
            states = net.stage(stage, states, tokens_BL[:, begin + 1 + stage : end + 1 + stage])
            own = net.logits(stage, states)
            wanted = F.linear(features_BLD[:, begin + 1 + stage : end + 1 + stage], head_VD)
            best = own.topk(CANDIDATES, dim=-1).indices
            hits = best == wanted.argmax(-1, keepdim=True)
            overlap = torch.minimum(own.softmax(-1), wanted.softmax(-1)).sum(-1)
            measured = (hits[..., 0], hits.any(-1), overlap)
            sums[:, stage] += torch.stack([value.double().sum() for value in measured]).cpu()
            goes_on &= best[..., 0] == tokens_BL[:, begin + 2 + stage : end + 2 + stage]
            chain += float(goes_on.sum())
        count += goes_on.numel()
    first, among_four, overlaps = (
        tuple(round(v, 4) for v in row) for row in (sums / count).tolist()
    )
    return DepthReport(
        first=first,
        among_four=among_four,
        overlap=overlaps,
        tokens_a_pass=round(1.0 + chain / count, 3),
    )


def table(reports: Mapping[str, Mapping[str, DepthReport]]) -> str:
    """Reports by stage of training and by text, as a table in Markdown; shares in percent, by depth."""
    lines = [
        "| after | text | likeliest is the target's | among four | accepted at T = 1 | tokens a pass, chain |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for after, by_text in reports.items():
        for text, report in by_text.items():
            shares = (
                " / ".join(f"{100 * share:.0f}" for share in row)
                for row in (report.first, report.among_four, report.overlap)
            )
            passes = f"{report.tokens_a_pass:.2f}"
            if report.tree_tokens_a_pass is not None:
                passes += f", tree of {TREE} {report.tree_tokens_a_pass:.2f}"
            lines.append(f"| {after} | {text} | {' | '.join(shares)} | {passes} |")
    return "\n".join(lines)
