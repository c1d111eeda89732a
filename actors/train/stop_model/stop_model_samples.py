"""What a decision model learns from: rows of a draft model, and whether the target took what they proposed.

The text is the target's own writing after beginnings of the training texts, since that is what drafters face. At every
position of it three questions are asked, one for each way in which candidates are drawn and tested here:

    greedy     the draft's best token is the target's best
    coupled    both best after the same noise was added, at a temperature
    sampled    a token drawn from the draft's row passes the test of speculative sampling (min(1, target / draft))

The features are those of the scores that the drafter ranks by in that case (`actors/speculation/stop_model.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.stop_model import Float32s, row_features
from outrider.actors.train.demo.rollout import continue_rows
from outrider.actors.train.features.feature_cache import Int32s
from outrider.actors.train.features.training_text import encode
from outrider.actors.train.loop.evaluate import to_device
from outrider.actors.train.loop.objective import logits_of
from outrider.actors.train.text.corpus import CorpusSource
from outrider.actors.train.training_errors import DataError

WAYS = ("greedy", "coupled", "sampled")
"""How candidates are drawn and tested."""

TEMPERATURES = (0.5, 0.8, 1.0)
"""Of the coupled and the sampled rows, by turns."""

ROWS_PER_PASS = 8
"""Texts in one pass over the models."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Rows and outcomes."""

    features_NF: Float32s
    accepted_N: NDArray[np.bool_]
    ways_N: NDArray[np.int64]
    """Index in `WAYS`."""
    texts_N: NDArray[np.int64]
    """Number of the text that each comes from; samples of one text are alike."""


def beginnings(
    data_dir: Path,
    sources: Sequence[CorpusSource],
    tokenizer: PreTrainedTokenizerFast,
    *,
    count: int,
    length: int,
) -> Int32s:
    """First tokens of training texts, about as many of each source. Shape (count, length).

    Raises:
        DataError: The texts are too few or too short.
    """
    found: list[NDArray[np.integer]] = []
    each = -(-count // len(sources))
    for source in sources:
        of_source: list[NDArray[np.integer]] = []
        for name in source.files:
            documents = list(islice(source.reader(data_dir / name), 4 * each))
            of_source.extend(
                piece[:length] for piece in encode(tokenizer, documents) if len(piece) >= length
            )
        found.extend(of_source[:each])
    if len(found) < count:
        raise DataError(
            f"{data_dir}: {len(found)} texts of at least {length} tokens, {count} are needed; ask for fewer texts"
        )
    return np.stack(found[:count]).astype(np.int32)


def write_texts(
    target: PreTrainedModel, prompts_BL: Int32s, length: int, seed: int
) -> torch.Tensor:
    """Continuations by the target, at several temperatures. Shape (B, length)."""
    prompts = to_device(prompts_BL, target)
    generator = torch.Generator(prompts.device).manual_seed(seed)
    return continue_rows(target, prompts, length, generator)


@torch.no_grad()
def collect(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    rows_BL: torch.Tensor,
    *,
    prompt_length: int,
    seed: int,
) -> Iterator[Samples]:
    """Samples at every written position, a few texts at a time.

    Args:
        target: Decides.
        draft: Proposes.
        rows_BL: Texts of the target.
        prompt_length: Tokens of each that it did not write.
        seed: Of the noise and of the draws.
    """
    generator = torch.Generator(rows_BL.device).manual_seed(seed)
    noise: GumbelNoise | None = None
    for first in range(0, len(rows_BL), ROWS_PER_PASS):
        rows = rows_BL[first : first + ROWS_PER_PASS]
        # Row i decides the token after it.
        target_BLV = logits_of(target, rows)[:, prompt_length - 1 : -1].float()
        draft_BLV = logits_of(draft, rows)[:, prompt_length - 1 : -1].float()
        if noise is None:
            noise = GumbelNoise(draft_BLV.shape[-1], draft_BLV.device)
        for index in range(len(rows)):
            text = first + index
            noise_LV = noise.rows(seed + text, prompt_length, draft_BLV.shape[1])
            temperature = TEMPERATURES[text % len(TEMPERATURES)]
            yield from _of_text(
                target_BLV[index], draft_BLV[index], noise_LV, temperature, text, generator
            )


def _of_text(
    target_LV: torch.Tensor,
    draft_LV: torch.Tensor,
    noise_LV: torch.Tensor,
    temperature: float,
    text: int,
    generator: torch.Generator,
) -> Iterator[Samples]:
    yield _samples(draft_LV, draft_LV.argmax(-1) == target_LV.argmax(-1), 0, text)
    target_LV, draft_LV = target_LV / temperature, draft_LV / temperature
    ranked_LV = draft_LV + noise_LV
    yield _samples(ranked_LV, ranked_LV.argmax(-1) == (target_LV + noise_LV).argmax(-1), 1, text)
    draft_probs_LV = draft_LV.softmax(-1)
    drawn_L1 = torch.multinomial(draft_probs_LV, 1, generator=generator)
    ratio_L = (target_LV.softmax(-1).gather(1, drawn_L1) / draft_probs_LV.gather(1, drawn_L1))[:, 0]
    uniform_L = torch.rand(len(ratio_L), generator=generator, device=ratio_L.device)
    yield _samples(draft_LV, uniform_L < ratio_L, 2, text)


def _samples(scores_LV: torch.Tensor, accepted_L: torch.Tensor, way: int, text: int) -> Samples:
    count = len(scores_LV)
    return Samples(
        features_NF=row_features(scores_LV),
        accepted_N=accepted_L.cpu().numpy(),
        ways_N=np.full(count, way),
        texts_N=np.full(count, text),
    )


def join(parts: Sequence[Samples]) -> Samples:
    """All samples together."""
    return Samples(
        features_NF=np.concatenate([part.features_NF for part in parts]),
        accepted_N=np.concatenate([part.accepted_N for part in parts]),
        ways_N=np.concatenate([part.ways_N for part in parts]),
        texts_N=np.concatenate([part.texts_N for part in parts]),
    )
