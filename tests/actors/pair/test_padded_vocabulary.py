"""A draft model that has more or fewer token ids than its target, as padded checkpoints of one tokenizer have."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from tests.actors.pair import test_frozen_law as law
from tests.actors.pair.pair import Pair
from tests.actors.speculation.goodness import MIN_P

from outrider.actors.draft.trees.restrictions import confine
from outrider.actors.engine.tables.tabular_engine import Table, random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import DraftPolicies, RootPolicy

FROZEN = law.FROZEN

WIDE = random_table(12, 2, seed=9, concentration=0.3)
NARROW = random_table(8, 2, seed=10, concentration=0.5)
PAIRS = {
    "padded drafter": (NARROW, random_table(12, 2, seed=11, concentration=0.3)),
    "padded target": (WIDE, NARROW),
}
SAMPLINGS = [
    Sampling(seed=3, max_tokens=60, temperature=0.0),
    Sampling(seed=3, max_tokens=60, temperature=0.9),
    Sampling(seed=5, max_tokens=60, temperature=0.9, top_p=0.9, repetition_penalty=1.1),
]


def biased(target: Table) -> Sampling:
    """Options that name a token only the target has, if it has one."""
    last = target.vocab_size - 1
    return Sampling(
        seed=5, max_tokens=60, temperature=1.0, logit_bias={last: 2.0, 0: -100.0}, min_tokens=3
    )


def together(
    pair: tuple[Table, Table], speculation: Speculation, max_tokens: int = 60
) -> tuple[Pair, list[list[int]]]:
    """Sessions with all options at once, and their texts."""
    both = Pair(*pair)
    for session, options in enumerate((*SAMPLINGS, biased(pair[0]))):
        sampling = replace(options, max_tokens=max_tokens)
        both.open(session, sampling, speculation, is_attached=speculation.enabled)
    both.run()
    assert all("the target ended" in end.message for end in both.ended), "the drafter gave up"
    return both, [both.texts[session] for session in range(len(SAMPLINGS) + 1)]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_texts_are_those_of_plain_decoding(pair: tuple[Table, Table]) -> None:
    """Nothing is proposed that the target lacks, and a token that only the target has ends no session."""
    _, plain = together(pair, Speculation(enabled=False))
    for verifier, roots in product(("coupled", "exact_match"), RootPolicy):
        policies = DraftPolicies(roots=roots)
        both, texts = together(pair, Speculation(verifier=verifier, policies=policies))
        assert texts == plain
        assert all(both.stats(session).accepted for session in both.texts)
    if pair[0] is WIDE:
        assert max(map(max, plain)) >= NARROW.vocab_size, "the drafter met no unknown token"


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("verifier", FROZEN)
def test_frozen_trees_hold_common_tokens(pair: tuple[Table, Table], verifier: str) -> None:
    """The law of candidates ends at the narrower width; every option is followed."""
    both, _ = together(pair, Speculation(verifier=verifier), max_tokens=12)
    assert all(both.stats(session).proposed for session in both.texts)


@pytest.mark.parametrize("verifier", FROZEN)
def test_the_law_stays_the_targets(verifier: str) -> None:
    """Sampled verification with a drafter whose mass lies in part on ids that the target does not have."""
    padded = random_table(law.VOCAB + 2, 2, seed=2, concentration=0.8)
    pair = Pair(law.TARGET, padded, seed=7, drafts=law.DRAFTS)
    sampling = Sampling(seed=0, max_tokens=law.TOKENS, temperature=law.TEMPERATURE)
    for session in range(10):
        options = replace(sampling, seed=100 + session)
        pair.open(session, options, law.speculation(verifier), law.PROMPT)
    pair.run()
    assert pair.stats(0).accepted > 0
    assert law.transition_p(list(pair.texts.values())) > MIN_P


def test_logits_of_a_model_are_confined_where_they_lie() -> None:
    """They were made in inference mode, which allows changes only there."""
    with torch.inference_mode():
        logits_RV = torch.zeros(2, 5)
    confine(logits_RV, np.array([3, 9]))
    assert logits_RV.isinf().tolist() == [[False] * 3 + [True] * 2, [False] * 5]
