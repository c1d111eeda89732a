"""How well a drafter foresees a target, by depth: what every trainer of draft nets measures on texts that the net has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from outrider.actors.train.loop.evaluate import CANDIDATES

TREE = 16
"""Nodes of a tree that is measured."""


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


class DepthSums:
    """Sums over positions, of which a `DepthReport` is made."""

    def __init__(self, depth: int) -> None:
        self._sums = torch.zeros(3, depth, dtype=torch.float64)
        self._right = torch.empty(0)
        self._chain = 0.0
        self._count = 0

    def add(
        self,
        depth: int,
        *,
        scores: torch.Tensor,
        law: torch.Tensor,
        target: torch.Tensor,
        written: torch.Tensor,
    ) -> None:
        """Takes some positions at one depth. Depth 0 begins with new positions, and the deeper ones of the same follow in their order.

        Args:
            depth: Tokens before this one.
            scores: What the drafter ranks tokens by [.., V].
            law: Its probabilities [.., V].
            target: The target's logits [.., V].
            written: The text's own token [..].
        """
        best = scores.topk(CANDIDATES, dim=-1).indices
        hits = best == target.argmax(-1, keepdim=True)
        overlap = torch.minimum(law, target.softmax(-1)).sum(-1)
        measured = (hits[..., 0], hits.any(-1), overlap)
        self._sums[:, depth] += torch.stack([value.double().sum() for value in measured]).cpu()
        is_right = best[..., 0] == written
        if depth == 0:
            self._count += is_right.numel()
            self._right = is_right
        else:
            self._right = self._right & is_right
        self._chain += float(self._right.sum())

    def add_all(self, *, scores: torch.Tensor, target: torch.Tensor, written: torch.Tensor) -> None:
        """Takes some positions at all depths.

        Args:
            scores: The drafter's logits [B, P, depths, V].
            target: The target's, likewise.
            written: The text's own tokens [B, P, depths].
        """
        for depth in range(scores.shape[2]):
            own = scores[:, :, depth]
            self.add(
                depth,
                scores=own,
                law=own.softmax(-1),
                target=target[:, :, depth],
                written=written[:, :, depth],
            )

    def report(self, *, in_trees: float | None = None) -> DepthReport:
        """The means.

        Args:
            in_trees: Sum over positions of the tokens that a tree of `TREE` nodes yields; None: not measured.
        """
        first, among_four, overlap = (
            tuple(round(value, 4) for value in row) for row in (self._sums / self._count).tolist()
        )
        return DepthReport(
            first=first,
            among_four=among_four,
            overlap=overlap,
            tokens_a_pass=round(1.0 + self._chain / self._count, 3),
            tree_tokens_a_pass=None if in_trees is None else round(1.0 + in_trees / self._count, 3),
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
