"""What the target says of every position that drafts learn from: computed once, kept, read by every step and every draft.

A target pass takes several times what a step of a draft takes, so it is worth keeping. The likeliest tokens of a position are
listed with their log-probabilities; what they leave is one number, which a draft is taught as the mass of all other tokens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load_file, save_file
from transformers import LlamaForCausalLM

from outrider.actors.train.loop.evaluate import to_device
from outrider.actors.train.loop.objective import logits_of
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.text.packing import Tokens, rows_of_step

LISTED = 128
"""Tokens of a position that are listed."""

NAMES = ("rows", "tokens", "logprobs")
"""Arrays of a batch in a file."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One batch.

    Attributes:
        rows_BL: Token ids, uint16.
        tokens_NK: The likeliest next tokens of every position, row after row, in no order; uint16.
        logprobs_NK: Their log-probabilities in nats, float16.
    """

    rows_BL: Tokens
    tokens_NK: Tokens
    logprobs_NK: npt.NDArray[np.float16]


@torch.no_grad()
def keep(target: LlamaForCausalLM, rows_BL: Tokens) -> Kept:
    """Runs the target over a batch."""
    logits_NV = logits_of(target, to_device(rows_BL, target)).flatten(0, 1).float()
    logprob_NV = logits_NV.log_softmax(-1)
    listed = logprob_NV.topk(min(LISTED, logprob_NV.shape[1]), dim=-1, sorted=False)
    return Kept(
        rows_BL,
        listed.indices.cpu().numpy().astype(np.uint16),
        listed.values.cpu().numpy().astype(np.float16),
    )


def num_batches(rows: int, schedule: Schedule) -> int:
    """How many batches so many rows of the target's writing make, or one more.

    Raises:
        ValueError: Every batch of the schedule is long, so there is none for the rows.
    """
    if schedule.long_every < 2:
        raise ValueError("long_every is below 2; there must be batches of ordinary rows")
    mixed = -(-rows // _half(schedule))
    return mixed + mixed // (schedule.long_every - 1) + 1


def _half(schedule: Schedule) -> int:
    """Rows of the target's writing in a batch."""
    return max(1, schedule.tokens_per_step // schedule.row_length // 2)


def batches_of(written: Tokens, text: Tokens, schedule: Schedule, first: int) -> list[Tokens]:
    """The batches that rows of the target's writing make: half of each is text, and now and then one is long rows of text.

    Args:
        written: Rows [rows, row length of the schedule].
        text: The stream that the text is taken from.
        schedule: Size of a batch, lengths of rows.
        first: Number of the first batch, which tells its place in the stream and which batches are long.
    """
    half = _half(schedule)
    batches: list[Tokens] = []
    used = 0
    while used < len(written):
        index = first + len(batches)
        length = schedule.length_at(index)
        rows = rows_of_step(text, index, schedule.tokens_per_step, length)
        if length == schedule.row_length:
            rows = np.concatenate([rows[half:], written[used : used + half]])
            used += half
        batches.append(rows)
    return batches


def keep_chunk(target: LlamaForCausalLM, batches: Sequence[Tokens], path: Path) -> list[Kept]:
    """The target's word on batches, made or read back from `path`, which appears when all are there."""
    if path.exists():
        stored = load_file(path)
        return [
            Kept(*(stored[f"{name}-{index}"] for name in NAMES))
            for index in range(len(stored) // len(NAMES))
        ]
    made = [keep(target, rows) for rows in batches]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    save_file(
        {
            f"{name}-{index}": np.ascontiguousarray(array)
            for index, one in enumerate(made)
            for name, array in zip(
                NAMES, (one.rows_BL, one.tokens_NK, one.logprobs_NK), strict=True
            )
        },
        partial,
    )
    with partial.open("rb") as handle:
        os.fsync(handle.fileno())
    partial.replace(path)
    return made
