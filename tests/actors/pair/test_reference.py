"""The single-process loop: equal to plain decoding, to the service's own workers, and in law for verifiers of frozen trees."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pytest
from tests.actors.pair import test_frozen_law as law
from tests.actors.pair.pair import Pair, blurred
from tests.actors.speculation.goodness import MIN_P

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, random_table
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.reference import Propose, decode
from outrider.actors.reference_drafter import model_drafter
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.trees.level_shapes import parse

TARGET = random_table(12, 2, seed=21, concentration=0.4, eos_token_ids=(11,))
DRAFT = blurred(TARGET, random_table(12, 2, seed=22), 0.4)
PROMPT = (1, 2, 0)
PLAIN = Sampling(seed=7, max_tokens=60, ignore_eos=True)
SAMPLINGS = (
    replace(PLAIN, temperature=0.0),
    replace(PLAIN, temperature=0.8),
    replace(PLAIN, temperature=0.7, top_p=0.9, repetition_penalty=1.2, logit_bias={3: 1.5}),
    replace(PLAIN, min_tokens=5, ignore_eos=False, stop_token_ids=(4,)),
)
SHAPES = {
    verifier: "1,1,1" if method.is_chain_only else "3,2,1" for verifier, method in VERIFIERS.items()
}


def engine(table: Table) -> TabularEngine:
    """A table with one slot."""
    return TabularEngine(table, EngineSettings(model="tabular:x", num_slots=1, max_scratch=32))


def drafter(table: Table, sampling: Sampling, verifier: str) -> AbstractContextManager[Propose]:
    """A drafter of this law."""
    return model_drafter(engine(table), PROMPT, sampling, parse(SHAPES[verifier]), verifier)


def served(sampling: Sampling) -> list[int]:
    """What target and drafter of the service write."""
    pair = Pair(TARGET, DRAFT)
    pair.open(0, sampling, Speculation(), PROMPT)
    pair.run()
    return pair.texts[0]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
def test_text_is_that_of_plain_decoding_and_of_the_service(sampling: Sampling) -> None:
    """For every option; stop tokens end all three alike."""
    plain = decode(engine(TARGET), PROMPT, sampling)
    assert plain == served(sampling)
    for verifier in ("coupled", "exact_match"):
        with drafter(DRAFT, sampling, verifier) as propose:
            assert decode(engine(TARGET), PROMPT, sampling, propose, verifier) == plain


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_greedy_text_is_the_same_by_every_verifier(verifier: str) -> None:
    """And it takes fewer passes of the target than it has tokens."""
    sampling = SAMPLINGS[0]
    passes = 0
    plain = decode(engine(TARGET), PROMPT, sampling)
    with drafter(DRAFT, sampling, verifier) as own:

        def propose(text: Sequence[int]) -> FrozenTree:
            nonlocal passes
            passes += 1
            return own(text)

        assert decode(engine(TARGET), PROMPT, sampling, propose, verifier) == plain
    assert passes < len(plain)


@pytest.mark.parametrize("verifier", law.FROZEN)
def test_text_follows_the_targets_law(verifier: str) -> None:
    """Counts of what follows what, compared with the table."""
    assert _transition_p(verifier, law.DRAFT, told=law.DRAFT) > MIN_P


@pytest.mark.parametrize("verifier", ["speculative_sampling", "specinfer"])
def test_laws_that_were_not_drawn_from_are_caught(verifier: str) -> None:
    """The comparison can fail: here the verifier is told another drafter's rows."""
    flat = random_table(law.VOCAB, 2, seed=99)
    assert _transition_p(verifier, law.DRAFT, told=flat) < MIN_P


def _transition_p(verifier: str, table: Table, told: Table) -> float:
    texts = []
    for seed in range(100, 102):
        sampling = Sampling(seed=seed, max_tokens=600, temperature=law.TEMPERATURE)
        shape = parse(law.SHAPES[verifier])
        with (
            model_drafter(engine(table), law.PROMPT, sampling, shape, verifier) as own,
            model_drafter(engine(told), law.PROMPT, sampling, shape, verifier) as other,
        ):

            def propose(
                text: Sequence[int], own: Propose = own, other: Propose = other
            ) -> FrozenTree:
                return replace(own(text), rows=other(text).rows)

            drafts = own if told is table else propose
            texts.append(decode(engine(law.TARGET), law.PROMPT, sampling, drafts, verifier))
    return law.transition_p(texts)


def test_candidates_of_any_origin_change_nothing() -> None:
    """Random trees below every text: what is accepted is the target's own draw."""
    own = np.random.default_rng(5)

    def propose(text: Sequence[int]) -> FrozenTree:
        size = int(own.integers(0, 9))
        parents = tuple(int(own.integers(-1, node)) for node in range(size))
        tokens = tuple(own.integers(0, 12, size).tolist())
        return FrozenTree(tree=DraftTree(tokens_N=tokens, parents_N=parents), rows=())

    for sampling in SAMPLINGS:
        assert decode(engine(TARGET), PROMPT, sampling, propose) == decode(
            engine(TARGET), PROMPT, sampling
        )


def test_slots_are_given_back_whatever_happens() -> None:
    """By both, also when the other one raises; an empty prompt takes none."""
    target, draft = engine(TARGET), engine(DRAFT)

    def broken(text: Sequence[int]) -> FrozenTree:
        raise RuntimeError("the drafter broke")

    with pytest.raises(RuntimeError, match="the drafter broke"):
        decode(target, PROMPT, PLAIN, broken)
    with pytest.raises(ValueError, match="prompt is empty"):
        decode(target, (), PLAIN)
    with model_drafter(draft, PROMPT, PLAIN, parse("2,1"), "coupled") as propose:
        assert draft.num_free == 0
        assert len(decode(target, PROMPT, PLAIN, propose)) == PLAIN.max_tokens
    assert (target.num_free, draft.num_free) == (1, 1)
