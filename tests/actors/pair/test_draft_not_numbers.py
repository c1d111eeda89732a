"""A draft model whose scores are not numbers: nothing ends for it, and no text changes."""

from __future__ import annotations

import math

import pytest
import torch
from tests.actors.engine.altered_scores import alter_scores
from tests.actors.pair.pair import Pair, blurred, texts_alone

from outrider.actors.engine.protocol import Engine
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice
from outrider.actors.target.state.target_events import Finished

TARGET = random_table(12, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(12, 2, seed=109, concentration=0.3), 0.3)
GREEDY = Sampling(seed=1, max_tokens=30, temperature=0.0)
SAMPLED = Sampling(seed=1, max_tokens=30, temperature=0.9, top_p=0.95)


def breaks(model: Engine, value: float, tokens: set[int]) -> None:
    """From now on the model gives this score to two tokens after some."""

    def change(values_V: torch.Tensor) -> None:
        values_V[2:4] = value

    alter_scores(model, tokens, change)


@pytest.mark.parametrize("length", [LengthChoice.FULL, LengthChoice.CONFIDENCE])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("verifier", ["coupled", "block", "traversal"])
def test_its_candidates_are_of_no_use_and_harm_nobody(
    verifier: str, value: float, length: LengthChoice
) -> None:
    """After some tokens, and after all: drafting goes on where there are numbers."""
    speculation = Speculation(verifier=verifier, policies=DraftPolicies(draft_length=length))
    for tokens in ({1, 5, 7}, set(range(12))):
        pair = Pair(TARGET, DRAFT)
        engine = pair.draft.core.drafter.engine
        assert engine is not None
        breaks(engine, value, tokens)
        samplings = [GREEDY, SAMPLED] if VERIFIERS[verifier].shares_noise else [GREEDY]
        for session, sampling in enumerate(samplings):
            pair.open(session, sampling, speculation)
        pair.run()
        assert list(pair.texts.values()) == texts_alone(TARGET, samplings)
        assert all(isinstance(end, Finished) for end in pair.ends.values())
        assert not any("failed" in end.message for end in pair.ended)
        assert pair.draft.stats.failures == 0
        if len(tokens) < 12:
            assert pair.stats(0).accepted > 0
