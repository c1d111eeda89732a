"""Drafters led along requests of several sequences."""

from __future__ import annotations

import pytest

from bench.figures.law import Text
from bench.figures.led_rounds import LedRequests, Rounds
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.speculation.options import Speculation

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
