"""Chats between the real workers: neither side computes again what an earlier turn has left in its slots."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.actors.pair.pair import Pair, blurred

from outrider.actors.engine.protocol import Engine, Logits, Rows
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation

VOCAB = 12
TARGET = random_table(VOCAB, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(VOCAB, 2, seed=109, concentration=0.3), 0.2)


def tokens_of(seed: int, length: int) -> list[int]:
    """Some tokens."""
    draws = random.Random(seed)
    return [draws.randrange(VOCAB) for _ in range(length)]


def count_prompts(engine: Engine) -> list[int]:
    """Grows by the number of rows of each chunk of committed text that an engine runs."""
    sizes: list[int] = []
    forward = engine.forward

    def counting(batch: Sequence[Rows]) -> Logits:
        sizes.extend(len(rows.tokens) for rows in batch if engine.scratch(rows.slot) == 0)
        return forward(batch)

    engine.forward = counting  # type: ignore[method-assign]
    return sizes


def fresh() -> Pair:
    """A pair whose target runs prompts in chunks that fit its slots."""
    return Pair(TARGET, DRAFT, prefill_chunk=64)


def plain(prompt: Sequence[int], sampling: Sampling) -> list[int]:
    """The text without a drafter, on a target that nobody else used."""
    pair = fresh()
    pair.open(0, sampling, Speculation(), prompt, is_attached=False)
    pair.run()
    return pair.texts[0]


@pytest.mark.parametrize(
    "verifiers",
    [
        ["coupled"] * 3,
        ["coupled", "block", "coupled"],
    ],
)
def test_a_drafter_runs_only_what_a_turn_adds(verifiers: list[str]) -> None:
    """Whatever verifier a turn asks for: both ways of drafting share the model's slots."""
    pair = fresh()
    sizes = count_prompts(pair.sampled.engine)
    text = tokens_of(1, 400)
    for turn, verifier in enumerate(verifiers):
        sizes.clear()
        sampling = Sampling(seed=turn, max_tokens=60, temperature=0.9)
        pair.open(turn, sampling, Speculation(verifier=verifier), text)
        pair.run()
        if verifier == "coupled":
            assert pair.texts[turn] == plain(text, sampling)
        assert pair.stats(turn).accepted > 5
        assert pair.stats(turn).cached_tokens == (len(text) - 21 if turn else 0)
        # The rest of a prompt, and what was committed beyond the trees.
        assert sum(sizes) >= 400 if turn == 0 else sum(sizes) < 200
        text = text + pair.texts[turn] + tokens_of(10 + turn, 20)
