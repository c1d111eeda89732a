"""The law of the text, for every verifier of frozen trees, through the real workers and the wire's bytes.

Two tables over three tokens, each distribution dependent on two tokens. A text is a Markov chain of known transitions if,
and only if, the service is exact; the counts of each token after each three tokens (one more than the table looks at) are
compared with them. A correct implementation fails one test in a million choices of seeds; the seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2  # type: ignore[import-untyped]  # no stubs
from tests.actors.pair.pair import Pair, Wire, blurred
from tests.actors.speculation.goodness import MIN_P

from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.frozen import law_frame
from outrider.actors.frozen.sparse_rows import freeze
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import level_shapes

VOCAB = 3
TARGET = random_table(VOCAB, 2, seed=11)
DRAFT = blurred(TARGET, random_table(VOCAB, 2, seed=12), 0.6)
PROMPT = (1, 2, 0)
TEMPERATURE = 0.8

FROZEN = [
    verifier
    for verifier, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless
]
SHAPES = {verifier: "1,1,1" if VERIFIERS[verifier].is_chain_only else "2,2" for verifier in FROZEN}

NUM_SESSIONS = 15
TOKENS = 200
"""Tokens of one session: 3,000 in all make some 1,200 rounds for each verifier. `tests/laws` has more of them."""


COOLING = 4
"""Power of the draft probabilities that the forbidden variant tells the target: as at a quarter of the temperature."""


def speculation(verifier: str) -> Speculation:
    """The options of one mode."""
    return Speculation(verifier=verifier, tree_shape=level_shapes.parse(SHAPES[verifier]))


def transition_p(texts: list[list[int]]) -> float:
    """How probable counts at least as far from the table's are, if the texts follow it."""
    counts = np.zeros((VOCAB,) * 4)
    for text in texts:
        whole = [*PROMPT, *text]
        for place in range(len(PROMPT), len(whole)):
            counts[tuple(whole[place - 3 : place + 1])] += 1
    logits = TARGET.log_probs / TEMPERATURE
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    expected = counts.sum(-1, keepdims=True) * probs[np.newaxis]
    is_common = expected.min(-1) >= 8.0
    terms = (counts - expected)[is_common] ** 2 / expected[is_common]
    return float(chi2.sf(terms.sum(), is_common.sum() * (VOCAB - 1)))


def run(
    verifier: str,
    meddle: Callable[[Wire], Wire] = lambda wire: wire,
    num_sessions: int = NUM_SESSIONS,
) -> Pair:
    """Texts of one mode."""
    pair = Pair(TARGET, DRAFT, seed=7, meddle=meddle)
    sampling = Sampling(seed=0, max_tokens=TOKENS, temperature=TEMPERATURE)
    for session in range(num_sessions):
        options = replace(sampling, seed=100 + session)
        pair.open(session, options, speculation(verifier), PROMPT)
    pair.run()
    return pair


@pytest.mark.parametrize("verifier", FROZEN)
def test_texts_follow_the_targets_law(verifier: str) -> None:
    """Every verifier gives the target's joint law, with most tokens proposed by the drafter."""
    pair = run(verifier)
    stats = [pair.stats(session) for session in range(NUM_SESSIONS)]
    rounds, accepted = sum(s.rounds for s in stats), sum(s.accepted for s in stats)
    assert rounds > 1000
    assert accepted > 0.7 * rounds
    assert transition_p(list(pair.texts.values())) > MIN_P


def cooled(wire: Wire) -> Wire:
    """Tells the target laws of another temperature than the drafter drew from."""
    for message in wire:
        for entry in message.candidates.frozen:
            tree = entry.tree
            parents = [parent - 1 for parent in tree.parents]
            true = law_frame.decode(
                tree.frame, tokens_N=tree.tokens, parents_N=parents, vocab_size=VOCAB
            )
            rows = tuple(freeze(row.dense(VOCAB) ** COOLING, 0.0) for row in true.rows)
            tree.frame = law_frame.encode(replace(true, rows=rows))
    return wire


@pytest.mark.parametrize("verifier", FROZEN)
def test_laws_of_another_temperature_are_caught(verifier: str) -> None:
    """The comparison has the power to fail: wrong draft probabilities change the text's law, and it shows."""
    assert transition_p(list(run(verifier, cooled).texts.values())) < MIN_P
