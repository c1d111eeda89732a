"""Where rounds begin: places in texts that the target itself wrote, with both models' rows cached up to there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bench.running.bench_prompts import Prompt
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.protocol import Engine, Moves, Rows
from outrider.actors.speculation.noise.gumbel import GumbelNoise, NoiseCache
from outrider.cluster.text.text_tokenizer import TextCodec, load

CHUNK = 256
"""Prompt tokens in one pass."""

MAX_SCRATCH = 1024
"""Rows of all trees below one context."""

LOOKAHEAD = 9
"""Tokens of the text after a context: as many as the deepest tree commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The two models in this process."""

    target: Engine
    draft: Engine
    drafter: Engine
    """The draft model once more, for a real drafter, which shares its engine with nobody."""
    codec: TextCodec

    @classmethod
    def load(cls, target: str, draft: str) -> Models:
        """Loads a pair, one thread for each model."""
        target_engine, draft_engine, drafter = (
            load_engine(
                EngineSettings(model=name, num_threads=1, num_slots=4, max_scratch=MAX_SCRATCH)
            )
            for name in (target, draft, draft)
        )
        codec = load(resolve_model(target).location)
        return cls(target=target_engine, draft=draft_engine, drafter=drafter, codec=codec)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Token ids as the service makes them."""
        if prompt.text is not None:
            return self.codec.encode(prompt.text, add_special_tokens=True)
        text = self.codec.render_chat(prompt.messages or ())
        return self.codec.encode(text, add_special_tokens=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One place in a text. Valid until the next one is asked for."""

    prompt: int
    """Number of the prompt."""

    tokens: list[int]
    """The text so far."""

    following: list[int]
    """How the target's text goes on, `LOOKAHEAD` tokens."""

    target_slot: int
    """Holds the rows of all tokens but the last."""

    draft_slot: int
    """Holds the rows of all tokens."""

    draft_logits_V: torch.Tensor
    """The draft model's logits after the last token."""

    noise: NoiseCache
    """The noise that the text was drawn with."""


def contexts(
    models: Models, prompt: Prompt, *, temperature: float, count: int, stride: int
) -> Iterator[Context]:
    """Contexts of one prompt, `stride` tokens apart, the first right after the prompt."""
    start = models.prompt_ids(prompt)
    noise = NoiseCache(GumbelNoise(models.target.spec.vocab_size, torch.device("cpu")), prompt.id)
    text = _written(models.target, start, temperature, (count - 1) * stride + LOOKAHEAD, noise)
    target_slot, draft_slot = models.target.acquire(), models.draft.acquire()
    try:
        done = 0
        for length in range(len(start), len(start) + count * stride, stride):
            fresh = text[done:length]
            held = models.target.cached(target_slot)
            _run(models.target, target_slot, text[held : length - 1], wants_logits=False)
            logits_V = _run(models.draft, draft_slot, fresh, wants_logits=True)
            assert logits_V is not None
            done = length
            yield Context(
                prompt=prompt.id,
                tokens=text[:length],
                following=text[length : length + LOOKAHEAD],
                target_slot=target_slot,
                draft_slot=draft_slot,
                draft_logits_V=logits_V,
                noise=noise,
            )
            models.target.truncate(target_slot, length - 1)
            models.draft.truncate(draft_slot, length)
    finally:
        models.target.release(target_slot)
        models.draft.release(draft_slot)


def probs_of(
    logits_NV: torch.Tensor, temperature: float
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The distributions of rows of logits, as the actors make them."""
    probs: np.ndarray[tuple[int, int], np.dtype[np.float64]] = torch.softmax(
        (logits_NV / temperature).double(), dim=-1
    ).numpy()
    return probs


def _written(
    engine: Engine, prompt: list[int], temperature: float, count: int, noise: NoiseCache
) -> list[int]:
    """The prompt and so many tokens of the target's own, drawn as the service draws them."""
    slot = engine.acquire()
    try:
        text, pending = list(prompt), list(prompt)
        for _ in range(count):
            scores_V = _run(engine, slot, pending, wants_logits=True)
            assert scores_V is not None
            if temperature > 0.0:
                scores_V = scores_V / temperature + noise.row_range(len(text), len(text) + 1)[0]
            pending = [int(scores_V.argmax())]
            text += pending
        return text
    finally:
        engine.release(slot)


def _run(
    engine: Engine, slot: int, tokens: list[int], *, wants_logits: bool
) -> torch.Tensor | None:
    """Caches tokens; the logits after the last one."""
    values: torch.Tensor | None = None
    for first in range(0, len(tokens), CHUNK):
        part = tokens[first : first + CHUNK]
        is_last = wants_logits and first + CHUNK >= len(tokens)
        logits = engine.forward(
            [
                Rows(
                    slot=slot,
                    tokens=part,
                    parents=range(-1, len(part) - 1),
                    logits="last" if is_last else "none",
                )
            ]
        )
        engine.rebase(Moves.one(slot, range(len(part))))
        if is_last:
            values = logits.values_RV[-1].clone()
    return values
