"""Held-out measures: loss per source, and how often a draft agrees with its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import LlamaForCausalLM, PreTrainedModel

from outrider.actors.train.loop.budget import Clock
from outrider.actors.train.loop.objective import logits_of
from outrider.actors.train.text.packing import Tokens

ROWS_PER_PASS = 4
CANDIDATES = 4


@dataclass(frozen=True)
class Agreement:
    """A draft beside its target, on the prefixes of real text (teacher forcing).

    Attributes:
        loss: the draft's own cross-entropy on the text, nats per token.
        first: share of positions where the draft's likeliest token is the target's.
        among_four: share where the target's likeliest is among the draft's four likeliest.
        overlap: mean of the sum over tokens of min(target, draft) probability: the chance that a
            token sampled from the draft at temperature 1 is accepted (Leviathan et al. 2022,
            arXiv 2211.17192).
    """

    loss: float
    first: float
    among_four: float
    overlap: float


def to_device(rows: NDArray[np.integer], model: PreTrainedModel) -> torch.Tensor:
    """Token rows as the model takes them: int64 on its device."""
    return torch.from_numpy(rows.astype(np.int64)).to(next(model.parameters()).device)


def seconds_per_row(model: LlamaForCausalLM, rows: Tokens, clock: Clock) -> float:
    """Time of a forward pass for each of its rows [rows, length], the second of two."""
    some = rows[:ROWS_PER_PASS]
    held_out_loss(model, {"": some})
    start = clock()
    held_out_loss(model, {"": some})
    return (clock() - start) / len(some)


def rows_within(seconds: float, seconds_per_row: float, most: int) -> int:
    """How many rows fit the time: whole passes, at least one and at most `most` rows."""
    if max(0.0, seconds) >= most * seconds_per_row:
        return most
    passes = int(seconds / (seconds_per_row * ROWS_PER_PASS))
    return min(most, max(1, passes) * ROWS_PER_PASS)


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, rows: Mapping[str, Tokens]) -> dict[str, float]:
    """Cross-entropy in nats per token of every source's rows [rows, length]."""
    model.train(False)
    result = {}
    for name, source_rows in rows.items():
        total, count = 0.0, 0
        for at in range(0, len(source_rows), ROWS_PER_PASS):
            rows_BL = to_device(source_rows[at : at + ROWS_PER_PASS], model)
            logits_NV = logits_of(model, rows_BL)[:, :-1].flatten(0, 1).float()
            total += F.cross_entropy(logits_NV, rows_BL[:, 1:].flatten(), reduction="sum").item()
            count += len(logits_NV)
        result[name] = total / count
    return result


@torch.no_grad()
def agreement(
    draft: LlamaForCausalLM, target: LlamaForCausalLM, rows: Mapping[str, Tokens]
) -> dict[str, Agreement]:
    """Compare a draft with its target on every source's rows [rows, length]."""
    draft.train(False)
    target.train(False)
    result = {}
    for name, source_rows in rows.items():
        sums = torch.zeros(4, dtype=torch.float64)
        count = 0
        for at in range(0, len(source_rows), ROWS_PER_PASS):
            rows_BL = to_device(source_rows[at : at + ROWS_PER_PASS], target)
            target_logits_NV = logits_of(target, rows_BL)[:, :-1].flatten(0, 1).float()
            draft_logits_NV = logits_of(draft, rows_BL)[:, :-1].flatten(0, 1).float()
            sums += compare(draft_logits_NV, target_logits_NV, rows_BL[:, 1:].flatten()).cpu()
            count += len(target_logits_NV)
        loss, first, among_four, overlap = (sums / count).tolist()
        result[name] = Agreement(loss, first, among_four, overlap)
    return result


def compare(
    draft_logits_NV: torch.Tensor, target_logits_NV: torch.Tensor, next_N: torch.Tensor
) -> torch.Tensor:
    """Sums over positions of the four measures of `Agreement`, in its order, float64 [4]."""
    best_N1 = target_logits_NV.argmax(-1, keepdim=True)
    candidates_NK = draft_logits_NV.topk(CANDIDATES, dim=-1).indices
    hit_NK = candidates_NK == best_N1
    overlap_N = torch.minimum(draft_logits_NV.softmax(-1), target_logits_NV.softmax(-1)).sum(-1)
    loss = F.cross_entropy(draft_logits_NV, next_N, reduction="sum")
    sums = (loss, hit_NK[:, 0].sum(), hit_NK.any(-1).sum(), overlap_N.sum())
    return torch.stack([value.double() for value in sums])
