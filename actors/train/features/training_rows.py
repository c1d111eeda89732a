"""The rows that a target is learnt on: texts that it reads, texts that it writes, and those that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.demo.rollout import TEMPERATURES
from outrider.actors.train.features.feature_cache import CacheKey, FeatureCache, Int32s
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.training_text import TextRows
from outrider.actors.train.loop.data_parallel import from_first, is_first
from outrider.actors.train.training_errors import TrainError

CHUNK = 64
"""Rows that are made at a time."""

PASS = 8
"""Rows in one pass of the target."""

HELD_ROWS = 32
"""Rows of each kind that are held out, at most."""

_TEXT_SEED, _OWN_SEED, _HELD_SEED = 11, 12, 13


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Rows with the target's states."""

    tokens_BL: torch.Tensor
    features_BLD: torch.Tensor
    first: int
    """Tokens of each row that were given to the target."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRows:
    """Rows of one length, and the target's states at them. Raises TrainError if they are longer than the target reads."""

    target: FrozenTarget
    data: Path
    folder: Path
    """Where caches are kept."""
    layers: tuple[Layer, ...]
    row_length: int
    prompt_length: int
    """Tokens of a row of its writing that the target is given."""
    num_text: int
    """Rows of text."""
    num_own: int
    """Rows of its writing."""
    resume: bool = True
    """Whether caches of other rows are kept and refused, or written anew."""

    def __post_init__(self) -> None:
        most = self.target.max_context
        if most is not None and self.row_length > most:
            raise TrainError(
                f"row_length is {self.row_length}; the target reads at most {most} tokens"
            )

    @cached_property
    def texts(self) -> TextRows:
        """The data, read when first needed."""
        return TextRows(self.data, self.target.tokenizer)

    @cached_property
    def _digest(self) -> str:
        """Tells texts at the same place apart. The first worker alone can read them."""
        return f"{from_first(self.texts.digest if is_first() else 0):016x}"

    @cached_property
    def _text_rows(self) -> Int32s:
        return self.texts.train(self.num_text, self.row_length, _TEXT_SEED)

    @cached_property
    def _prompts(self) -> Int32s:
        return self.texts.prompts(self.num_own, self.prompt_length, _OWN_SEED)

    def text(self) -> FeatureCache:
        """The cache of texts."""
        return self._cache("text", 0, self.num_text)

    def own(self) -> FeatureCache:
        """The cache of the target's writing."""
        return self._cache("own writing", self.prompt_length, self.num_own)

    def add_chunk(self, cache: FeatureCache, *, is_own: bool) -> None:
        """Adds the next rows of either kind. Which they are is fixed by their numbers, whatever was interrupted."""
        at = cache.num_rows - cache.num_rows % CHUNK
        if is_own:
            prompts = self._prompts[at : at + CHUNK]
            rows = self.target.write(prompts, self.row_length, _OWN_SEED + at, TEMPERATURES)
        else:
            rows = self._text_rows[at : at + CHUNK]
        rows = rows[cache.num_rows - at :]
        for begin in range(0, len(rows), PASS):
            some = rows[begin : begin + PASS]
            cache.append(some, self.target.features(some, self.layers))

    def held_out(self, near_zero: float) -> dict[str, HeldOut]:
        """Held-out text, and what the target writes after its beginnings: greedily, and at temperature 1."""
        text = self.texts.held_out(HELD_ROWS, self.row_length)
        prompts = text[:, : self.prompt_length]
        greedy = self.target.write(prompts, self.row_length, _HELD_SEED, (near_zero,))
        drawn = self.target.write(prompts, self.row_length, _HELD_SEED, (1.0,))
        return {
            "text": self._held(text, 0),
            "own, greedy": self._held(greedy, self.prompt_length),
            "own, T = 1": self._held(drawn, self.prompt_length),
        }

    def _held(self, rows: Int32s, first: int) -> HeldOut:
        parts = [
            self.target.features(rows[at : at + PASS], self.layers)
            for at in range(0, len(rows), PASS)
        ]
        tokens = torch.from_numpy(rows.astype(np.int64)).to(self.target.device)
        return HeldOut(tokens, torch.cat(parts), first)

    def _cache(self, kind: str, first: int, num_rows: int) -> FeatureCache:
        key = CacheKey(
            target=self.target.fingerprint,
            layers=self.layers,
            width=self.target.width,
            row_length=self.row_length,
            first=first,
            # Not where it lies: the same texts make the same rows.
            text=f"{kind} of data with the digest {self._digest}",
        )
        folder = self.folder / f"features-{kind.replace(' ', '-')}"
        return FeatureCache(folder, key, num_rows, resume=self.resume)
