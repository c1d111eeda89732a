"""How well each exit of a nested draft foresees its target on texts that it has not seen, and what leaving by confidence does to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.evaluate import compare
from outrider.actors.train.nested.nested_objective import exit_states

ROWS_PER_PASS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    """One way of leaving the model.

    Attributes:
        first: Share of positions where the likeliest token is the target's.
        among_four: Share where the target's likeliest is among the four likeliest.
        overlap: Mean of the sum over tokens of the lesser probability: what speculative sampling accepts at temperature 1.
        layers: Mean of the layers that were run.
    """

    first: float
    among_four: float
    overlap: float
    layers: float


@torch.no_grad()
def exit_reports(
    model: LlamaForCausalLM,
    held: HeldOut,
    output: Logits,
    exits: Sequence[int],
    thresholds: Sequence[float] = (),
) -> dict[str, ExitReport]:
    """Measures the exits of a model on some rows.

    Args:
        model: The draft.
        held: Rows with the target's states.
        output: The target's output layer.
        exits: Layers of each.
        thresholds: Confidences from which on a position leaves before the last exit; each is measured as well.
    """
    model.train(False)
    begin = max(held.first - 1, 0)
    ways = [f"exit {layers}" for layers in exits] + [f"confidence {one:g}" for one in thresholds]
    sums = {way: torch.zeros(4, dtype=torch.float64) for way in ways}
    count = 0
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens_BL = held.tokens_BL[at : at + ROWS_PER_PASS]
        wanted_NV = output(held.features_BLD[at : at + ROWS_PER_PASS, begin:-1]).flatten(0, 1)
        next_N = tokens_BL[:, begin + 1 :].flatten()
        laws = [
            model.lm_head(states[:, begin:-1]).flatten(0, 1).float()
            for states in exit_states(model, tokens_BL, exits)
        ]
        layers_E = torch.tensor(exits, dtype=torch.float64)
        for exit_, law_NV in enumerate(laws):
            sums[ways[exit_]] += _sums(law_NV, wanted_NV, next_N, len(next_N) * layers_E[exit_])
        sure_EN = (
            torch.stack([law.softmax(-1).amax(-1) for law in laws[:-1]]) if exits[1:] else None
        )
        for threshold, way in zip(thresholds, ways[len(exits) :], strict=True):
            taken_N = torch.full((len(next_N),), len(exits) - 1, device=next_N.device)
            for exit_ in reversed(range(len(exits) - 1)):
                assert sure_EN is not None, "there is an exit before the last"
                taken_N[sure_EN[exit_] > threshold] = exit_
            law_NV = torch.stack(laws)[taken_N, torch.arange(len(next_N))]
            sums[way] += _sums(law_NV, wanted_NV, next_N, layers_E[taken_N.cpu()].sum())
        count += len(next_N)
    return {
        way: ExitReport(
            first=round(float(total[0]) / count, 4),
            among_four=round(float(total[1]) / count, 4),
            overlap=round(float(total[2]) / count, 4),
            layers=round(float(total[3]) / count, 3),
        )
        for way, total in sums.items()
    }


def _sums(
    law_NV: torch.Tensor, wanted_NV: torch.Tensor, next_N: torch.Tensor, layers: torch.Tensor
) -> torch.Tensor:
    measured = compare(law_NV, wanted_NV, next_N).cpu()
    return torch.cat((measured[1:], layers.reshape(1)))


def exit_table(reports: Mapping[str, Mapping[str, ExitReport]]) -> str:
    """Reports by text, as a table in Markdown; shares in percent."""
    lines = [
        "| text | way out | layers | likeliest is the target's | among four | accepted at T = 1 |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for text, by_way in reports.items():
        for way, report in by_way.items():
            shares = (report.first, report.among_four, report.overlap)
            cells = " | ".join(f"{100 * share:.1f}" for share in shares)
            lines.append(f"| {text} | {way} | {report.layers:.2f} | {cells} |")
    return "\n".join(lines)
