"""The rows that a target is learnt on: texts that it reads, texts that it writes, and those that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.demo.rollout import TEMPERATURES
from outrider.actors.train.features.feature_cache import CacheKey, FeatureCache, Int32s
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.training_text import TextRows
from outrider.actors.train.loop.data_parallel import from_first, is_first
from outrider.actors.train.trainer_options import TargetRowsOptions
from outrider.actors.train.training_errors import TrainError

CHUNK = 64
"""Rows that are made at a time."""

PASS = 8
"""Rows in one pass of the target."""

HELD_ROWS = 32
"""Rows of each kind that are held out, at most."""

NEAR_ZERO = 1e-4
"""Temperature of greedy writing."""

_TEXT_SEED, _OWN_SEED, _HELD_SEED = 11, 12, 13


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Rows with the target's states."""

    tokens_BL: torch.Tensor
    features_BLD: torch.Tensor
    first: int
    """Tokens of each row that were given to the target."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of one length, and the target's states at them. Raises TrainError if they are longer than the target reads."""

    options: TargetRowsOptions
    """Say which texts, how many rows of what length, and where caches are kept."""

    target: FrozenTarget
    layers: tuple[Layer, ...]
    """Whose states are kept."""

    def __post_init__(self) -> None:
        most = self.target.max_context
        length = self.options.row_length
        if most is not None and length > most:
            raise TrainError(f"row_length is {length}; the target reads at most {most} tokens")

    @cached_property
    def texts(self) -> TextRows:
        """The data, read when first needed."""
        return TextRows(self.options.data, self.target.tokenizer)

    @cached_property
    def _digest(self) -> str:
        """Tells texts at the same place apart. The first worker alone can read them."""
        return f"{from_first(self.texts.digest if is_first() else 0):016x}"

    @cached_property
    def _text_rows(self) -> Int32s:
        return self.texts.train(self.options.text_rows, self.options.row_length, _TEXT_SEED)

    @cached_property
    def _prompts(self) -> Int32s:
        return self.texts.prompts(self.options.own_rows, self.options.prompt_length, _OWN_SEED)

    def text(self) -> FeatureCache:
        """The cache of texts."""
        return self._cache("text", 0, self.options.text_rows)

    def own(self) -> FeatureCache:
        """The cache of the target's writing."""
        return self._cache("own writing", self.options.prompt_length, self.options.own_rows)

    def add_chunk(self, cache: FeatureCache, *, is_own: bool) -> None:
        """Adds the next rows of either kind. Which they are is fixed by their numbers, whatever was interrupted."""
        at = cache.num_rows - cache.num_rows % CHUNK
        if is_own:
            prompts = self._prompts[at : at + CHUNK]
            rows = self.target.write(prompts, self.options.row_length, _OWN_SEED + at, TEMPERATURES)
        else:
            rows = self._text_rows[at : at + CHUNK]
        rows = rows[cache.num_rows - at :]
        for begin in range(0, len(rows), PASS):
            some = rows[begin : begin + PASS]
            cache.append(some, self.target.features(some, self.layers))

    def held_out(self) -> dict[str, HeldOut]:
        """Held-out text, and what the target writes after its beginnings: greedily, and at temperature 1."""
        length, given = self.options.row_length, self.options.prompt_length
        text = self.texts.held_out(HELD_ROWS, length)
        prompts = text[:, :given]
        greedy = self.target.write(prompts, length, _HELD_SEED, (NEAR_ZERO,))
        drawn = self.target.write(prompts, length, _HELD_SEED, (1.0,))
        return {
            "text": self._held(text, 0),
            "own, greedy": self._held(greedy, given),
            "own, T = 1": self._held(drawn, given),
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
            row_length=self.options.row_length,
            first=first,
            # Not where it lies: the same texts make the same rows.
            text=f"{kind} of data with the digest {self._digest}",
        )
        folder = self.options.out / "progress" / f"features-{kind.replace(' ', '-')}"
        return FeatureCache(folder, key, num_rows, resume=self.options.resume)
