"""Continuations written by the target, for drafts to learn on what they will really be asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedModel

from outrider.actors.engine.checkpoint.cache_argument import cache_argument
from outrider.actors.train.loop.objective import mixed_precision
from outrider.actors.train.text.packing import Tokens

TEMPERATURES = (0.3, 0.7, 1.0, 1.0)


@torch.no_grad()
def continue_rows(
    model: PreTrainedModel,
    prompts_BL: torch.Tensor,
    length: int,
    generator: torch.Generator,
    temperatures: Sequence[float] = TEMPERATURES,
) -> torch.Tensor:
    """Rows [B, length] that begin with `prompts_BL` and go on with the model's own samples.

    The rows take the temperatures in turn; one near zero takes the likeliest tokens. A row does not stop at an end marker:
    it goes on with a new document, as the training rows do.
    """
    model.train(False)
    by_turns = torch.tensor(temperatures).repeat(len(prompts_BL) // len(temperatures) + 1)
    temperature_B1 = by_turns[: len(prompts_BL), None].to(prompts_BL.device)
    cache, argument = DynamicCache(config=model.config), cache_argument(model) or "cache"
    rows_BL, fresh_BL = prompts_BL, prompts_BL
    while rows_BL.shape[1] < length:
        with mixed_precision(rows_BL.device):
            output = model(
                input_ids=fresh_BL, use_cache=True, logits_to_keep=1, **{argument: cache}
            )
        prob_BV = (output.logits[:, -1].float() / temperature_B1).softmax(-1)
        fresh_BL = torch.multinomial(prob_BV, 1, generator=generator)
        rows_BL = torch.cat([rows_BL, fresh_BL], dim=1)
    return rows_BL


def rollout_chunks(
    model: LlamaForCausalLM,
    stream: Tokens,
    folder: Path,
    *,
    begin: int,
    chunks: int,
    rows: int,
    length: int,
    prompt_length: int,
    seed: int,
) -> Iterator[Tokens]:
    """Yield `chunks` arrays [rows, length], made or read back from `folder`.

    Prompts are pieces of `stream`, every other one from a `begin` token on where it has any. A
    chunk depends on its number and the seed only and is kept on disk, so that a killed run loses
    one chunk at most.
    """
    folder.mkdir(parents=True, exist_ok=True)
    device = next(model.parameters()).device
    openings = np.flatnonzero(stream[: len(stream) - prompt_length] == begin)
    for index in range(chunks):
        path = folder / f"{seed}-{rows}x{length}-{index:04d}.npy"
        if path.exists():
            yield np.load(path)
            continue
        chooser = np.random.default_rng([seed, index])
        starts = chooser.integers(0, len(stream) - prompt_length, rows)
        if len(openings):
            starts[::2] = chooser.choice(openings, len(starts[::2]))
        prompts = np.stack([stream[start : start + prompt_length] for start in starts])
        prompts_BL = torch.from_numpy(prompts.astype(np.int64)).to(device)
        generator = torch.Generator(device).manual_seed(seed * 100_003 + index)
        made = continue_rows(model, prompts_BL, length, generator).cpu().numpy().astype(np.uint16)
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as handle:
            np.save(handle, made)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
        yield made
