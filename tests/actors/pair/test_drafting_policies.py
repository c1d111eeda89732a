"""Drafting policies between the real workers: what they do, and that no text changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.actors.pair import test_frozen_law as law
from tests.actors.pair.pair import Pair, blurred, texts_alone
from tests.actors.pair.test_frozen_exchange import Chaos
from tests.actors.speculation.choice.test_stopping import decisive_model
from tests.actors.speculation.goodness import MIN_P

from outrider.actors.draft.stopping.lengths import Lengths
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice, RootPolicy
from outrider.actors.speculation.trees import level_shapes

TARGET = random_table(12, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(12, 2, seed=109, concentration=0.3), 0.3)
FROZEN = [
    verifier
    for verifier, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless
]

LENGTHS: list[DraftPolicies] = [
    DraftPolicies(),
    DraftPolicies(draft_length=LengthChoice.CONFIDENCE, aggressiveness=0.4),
    DraftPolicies(draft_length=LengthChoice.DECISION, decision_threshold=0.5),
]
GROWING = [replace(length, roots=roots) for length, roots in product(LENGTHS, RootPolicy)]
SAMPLINGS = [
    Sampling(seed=3, max_tokens=40, temperature=0.0),
    Sampling(seed=3, max_tokens=60, temperature=0.9),
    Sampling(seed=5, max_tokens=40, temperature=0.7, top_p=0.9, repetition_penalty=1.2),
]


def pair(**fields: object) -> Pair:
    """A target and a drafter that offers every policy."""
    return Pair(TARGET, DRAFT, lengths=Lengths(decisive_model()), **fields)  # type: ignore[arg-type]


def plain(sampling: Sampling) -> list[int]:
    """The text without speculation."""
    return texts_alone(TARGET, [sampling])[0]


@pytest.mark.parametrize("verifier", ["coupled", "exact_match"])
@pytest.mark.parametrize("policies", GROWING)
def test_texts_are_those_of_plain_decoding(policies: DraftPolicies, verifier: str) -> None:
    """Every combination, greedy, sampled and filtered, in fewer passes than tokens."""
    both = pair()
    for session, sampling in enumerate(SAMPLINGS):
        both.open(session, sampling, Speculation(verifier=verifier, policies=policies))
    both.run()
    for session, sampling in enumerate(SAMPLINGS):
        assert both.texts[session] == plain(sampling)
        stats = both.stats(session)
        assert stats.accepted > 0
        assert stats.rounds + stats.plain_passes < len(both.texts[session])
    assert not both.draft.stats.failures


@pytest.mark.parametrize(
    ("verifier", "policies"),
    [*(("coupled", length) for length in LENGTHS), ("speculative_sampling", LENGTHS[0])],
)
def test_no_temperature_is_too_low_or_too_high(verifier: str, policies: DraftPolicies) -> None:
    """All that a request may ask for: the drafter goes on, and a session beside it notices nothing."""
    temperatures = (1e-300, 1e-45, 1e-40, 1e-6, 100.0)
    asked = [replace(SAMPLINGS[1], temperature=temperature) for temperature in temperatures]
    both = pair()
    for session, sampling in enumerate(asked, 1):
        both.open(session, sampling, Speculation(verifier=verifier, policies=policies))
    both.open(0, SAMPLINGS[0], Speculation(policies=policies))
    both.run()
    for session, sampling in enumerate(asked, 1):
        if not VERIFIERS[verifier].needs_frozen_tree:
            assert both.texts[session] == plain(sampling)
        assert len(both.texts[session]) == sampling.max_tokens
    assert both.texts[0] == plain(SAMPLINGS[0])
    assert both.stats(0).accepted > 0
    assert not both.draft.stats.failures


@pytest.mark.parametrize("lockstep", [False, True])
def test_sessions_with_different_policies_share_passes(lockstep: bool) -> None:
    """All combinations side by side on one drafter, over a network that loses, repeats and reorders."""
    sampling = replace(SAMPLINGS[1], max_tokens=30)
    both = pair(meddle=Chaos(2), lockstep=lockstep)
    for session, policies in enumerate(GROWING[::2]):
        both.open(session, sampling, Speculation(policies=policies))
    both.run()
    assert set(map(tuple, both.texts.values())) == {tuple(plain(sampling))}
    assert not both.draft.stats.failures


@pytest.mark.parametrize("length", LENGTHS[1:])
def test_lengths_save_draft_passes(length: DraftPolicies) -> None:
    """A drafter that stops early runs fewer passes for the same text."""
    passes = []
    for policies in (DraftPolicies(), length):
        both = pair()
        both.open(0, SAMPLINGS[1], Speculation(policies=policies))
        both.run()
        passes.append(both.draft.stats.passes)
    assert passes[1] < passes[0]


def test_roots_of_the_target_are_accepted_without_any_drafter() -> None:
    """The target alone speculates with what it last thought after each token; the tokens count as its own."""
    sampling = replace(SAMPLINGS[1], max_tokens=150)
    alone = pair()
    policies = DraftPolicies(roots=RootPolicy.TARGET)
    alone.open(0, sampling, Speculation(policies=policies), is_attached=False)
    alone.run()
    stats = alone.stats(0)
    assert alone.texts[0] == plain(sampling)
    assert stats.accepted > 30
    assert stats.rounds + stats.plain_passes == 150 - stats.accepted
    assert stats.candidate_messages == 0


def test_roots_of_the_target_help_a_drafter_that_knows_nothing() -> None:
    """More is accepted than what it guesses."""
    uniform = replace(TARGET, log_probs=np.full_like(TARGET.log_probs, -np.log(12.0)))
    sampling = Sampling(seed=4, max_tokens=150, temperature=0.0)
    accepted = []
    for roots in RootPolicy:
        both = Pair(TARGET, uniform)
        both.open(0, sampling, Speculation(policies=DraftPolicies(roots=roots)))
        both.run()
        assert both.texts[0] == plain(sampling)
        accepted.append(both.stats(0).accepted)
    assert accepted[1] > accepted[0] + 5


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("length", LENGTHS[1:])
def test_greedy_texts_of_frozen_trees_are_those_of_plain_decoding(
    verifier: str, length: DraftPolicies
) -> None:
    """With trees of varying depth."""
    sampling = SAMPLINGS[0]
    both = pair()
    both.open(0, sampling, Speculation(verifier=verifier, policies=length))
    both.run()
    assert both.texts[0] == plain(sampling)
    assert both.stats(0).accepted > 0


@pytest.mark.parametrize(
    ("verifier", "length", "shape"),
    [
        ("mcsd_without_replacement", replace(LENGTHS[1], aggressiveness=2.5), "2,2"),
        ("block", LENGTHS[2], "1,1,1"),
    ],
)
def test_texts_of_frozen_trees_follow_the_targets_law(
    verifier: str, length: DraftPolicies, shape: str
) -> None:
    """As `test_frozen_law`, where depths vary with the row of the base: trees of one level and of several."""
    lengths = Lengths(decisive_model())
    both = Pair(law.TARGET, law.DRAFT, seed=7, lengths=lengths, drafts=law.DRAFTS)
    speculation = Speculation(
        verifier=verifier, tree_shape=level_shapes.parse(shape), policies=length
    )
    for session in range(law.NUM_SESSIONS):
        sampling = Sampling(
            seed=100 + session, max_tokens=2 * law.TOKENS, temperature=law.TEMPERATURE
        )
        both.open(session, sampling, speculation, law.PROMPT)
    both.run()
    reached = np.sum([both.stats(session).reached_by_depth for session in both.texts], axis=0)
    assert len(reached) == len(shape.split(","))
    assert reached[0] > 1.05 * reached[-1] > 0
    assert law.transition_p(list(both.texts.values())) > MIN_P
