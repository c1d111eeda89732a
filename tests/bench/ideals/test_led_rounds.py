"""Drafters led along requests of several sequences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.ideals.law import Text
from bench.ideals.led_rounds import LedRequests, Rounds
from bench.running.target_states import TargetStates
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.speculation.options import Speculation
from outrider.actors.train.features.frozen_target import load_target

OUTPUT = list(range(100, 125))


def lead(method: str, *, num_sequences: int, at_once: int, again: bool = False) -> Rounds:
    """Sequences that say the same, none of which repeats itself."""
    settings = DraftSettings(name="led", incarnation=1, method=method, lockstep=True)
    led = LedRequests(settings, Speculation(max_nodes=4, max_depth=4), 0.0)
    texts = [Text(prompt=[1, 2, 3], output=OUTPUT, seed=seed) for seed in range(num_sequences)]
    for _ in range(1 + again):
        rounds = Rounds()
        led.lead(texts, rounds, at_once=at_once)
    return rounds


@pytest.mark.parametrize(
    ("method", "at_once", "again", "passes"),
    [
        # The first token comes with the prompt.
        ("prompt_lookup", 1, False, 2 * 24),
        ("consensus", 2, False, 2 * 24),
        # The second sequence begins when the first has ended: four candidates and a token more in a pass, 24 tokens in 5.
        ("consensus", 1, False, 24 + 5),
        ("suffix", 2, False, 2 * 24),
        ("suffix", 2, True, 2 * 5),
    ],
)
def test_what_a_drafter_knows_saves_passes(
    method: str, at_once: int, again: bool, passes: int
) -> None:
    """Whoever has seen the text before needs fewer; tokens are all there."""
    rounds = lead(method, num_sequences=2, at_once=at_once, again=again)
    assert rounds.num_passes == passes
    assert rounds.num_tokens == 2 * 24
    assert sum(rounds.accepted) == rounds.num_tokens - rounds.num_passes
    assert all(got <= of for got, of in zip(rounds.accepted, rounds.reached, strict=True))


def test_a_drafter_of_hidden_states_is_led_with_them() -> None:
    """Along what its target wrote it foresees a part, and rows that are computed are counted: fewer where states are used again."""
    target = load_target("demo:target", torch.device("cpu"))
    prompt = target.tokenizer("The history of the telescope begins")["input_ids"]
    text = target.write(np.array([prompt], np.int32), 72, 0, (1e-4,))[0].tolist()
    states = TargetStates("demo:target")
    found: dict[str, Rounds] = {}
    for method, options in (("eagle3", {}), ("hidden_reuse", {"inject_from": 1})):
        settings = DraftSettings(
            name="led",
            incarnation=1,
            method=method,
            options=options,
            lockstep=True,
            engine=EngineSettings(model="demo:eagle3", num_slots=1, max_context=128),
        )
        led = LedRequests(settings, Speculation(max_nodes=8, max_depth=6), 0.0, states)
        found[method] = Rounds()
        texts = [Text(prompt=prompt, output=text[len(prompt) :], seed=0)]
        led.lead(texts, found[method], at_once=1)
    assert found["eagle3"].num_tokens > 1.3 * found["eagle3"].num_passes
    drafted = [one.num_drafted / one.num_passes for one in found.values()]
    assert 1.0 < drafted[1] < drafted[0]
