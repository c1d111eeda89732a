"""Decoding the prompts through the service, plainly or speculatively, and adding up what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from bench.running.bench_prompts import Prompt
from outrider.client import Client, SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Generation, SpeculationStats, Timing


@dataclass(slots=True)
class Decoded:
    """What one run over the prompts gave."""

    texts: list[tuple[int, ...]] = field(default_factory=list)
    """Output token ids of each sequence."""

    stats: list[SpeculationStats] = field(default_factory=list)
    """Statistics of each sequence."""

    timings: list[Timing] = field(default_factory=list)
    """Where the time of each sequence went."""

    decode_s: float = 0.0
    """Seconds from the first token of each prompt to its last, added up: decoding without the prompt."""

    total_s: float = 0.0
    """Seconds from request to end, added up."""

    def add(self, other: Decoded) -> None:
        """Takes in what another run over other prompts gave."""
        self.texts += other.texts
        self.stats += other.stats
        self.timings += other.timings
        self.decode_s += other.decode_s
        self.total_s += other.total_s

    @property
    def num_tokens(self) -> int:
        """Output tokens."""
        return sum(len(text) for text in self.texts)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second, request to end, prompt included."""
        return self.num_tokens / self.total_s

    @property
    def tokens_per_pass(self) -> float:
        """Mean tokens committed in a target pass, bonus and plain passes included."""
        passes = sum(s.rounds + s.plain_passes for s in self.stats)
        return self.num_tokens / passes if passes else 0.0

    @property
    def bytes_per_token(self) -> float:
        """Bytes of candidates and verdicts for each committed token, before framing."""
        return sum(s.wire_bytes for s in self.stats) / self.num_tokens

    @property
    def near_ties(self) -> int:
        """Draws whose two best perturbed logits were closer than the rounding of the target's type (docs/exactness.md)."""
        return sum(s.near_ties for s in self.stats)


def decode(
    client: Client,
    prompts: Sequence[Prompt],
    *,
    temperature: float,
    max_tokens: int,
    enabled: bool,
    ignore_eos: bool = True,
    num_sequences: int = 1,
    speculation: SpeculationOptions | None = None,
    model: str = "",
    at_once: int = 1,
    may_begin: threading.Event | None = None,
) -> Decoded:
    """Decodes the prompts, `at_once` at a time, each after another by default; the seed of each is its number. `speculation` stands in
    place of `enabled` alone, `model` is for services of several, and while `may_begin` is not set none is begun, for a minute at most."""

    def one(prompt: Prompt) -> tuple[Generation, float]:
        if may_begin is not None:
            may_begin.wait(60.0)
        sampling = SamplingOptions(
            temperature=temperature,
            max_tokens=max_tokens,
            seed=prompt.id,
            ignore_eos=ignore_eos,
            n=num_sequences,
        )
        began = time.perf_counter()
        result = client.generate(
            **prompt.request(),
            model=model,
            sampling=sampling,
            speculation=speculation or SpeculationOptions(enabled=enabled),
            timeout_s=300.0,
        )
        return result, time.perf_counter() - began

    run = Decoded()
    with ThreadPoolExecutor(at_once) as threads:
        for result, took_s in threads.map(one, prompts):
            run.total_s += took_s
            decode_s = 0.0
            for output in result.outputs:
                completion = output.completion
                assert completion is not None, "a whole result has a completion"
                timing = completion.timing
                decode_s = max(decode_s, timing.total_s - timing.first_token_s)
                run.texts.append(tuple(token.id for token in output.tokens))
                run.stats.append(completion.speculation)
                run.timings.append(timing)
            run.decode_s += decode_s
    return run


def differences(prompts: Sequence[Prompt], plain: Decoded, ours: Decoded) -> list[dict[str, Any]]:
    """Prompts whose outputs differ, where, and whether a near tie was met there or before."""
    found = []
    for prompt, a, b, stats in zip(prompts, plain.texts, ours.texts, ours.stats, strict=True):
        if a != b:
            place = next(
                (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                min(len(a), len(b)),
            )
            found.append({"prompt": prompt.id, "at": place, "near_ties": stats.near_ties})
    return found
