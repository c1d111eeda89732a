"""The law of the text, for every verifier of frozen trees, through the real workers and the wire's bytes.

Two tables over three tokens, each distribution dependent on two tokens. A text is a Markov chain of known transitions if,
and only if, the service is exact; the counts of each token after each three tokens (one more than the table looks at) are
compared with them. A correct implementation fails one test in a million choices of seeds; the seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2  # type: ignore[import-untyped]  # no stubs
from tests.actors.pair.pair import Pair, Wire, blurred
from tests.actors.speculation.goodness import MIN_P

from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.frozen import frozen_candidates, law_frame
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import freeze
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees import level_shapes
from outrider.actors.speculation.trees.draft_tree import Replacement
from outrider.actors.speculation.verify.residual import without
from outrider.v1 import target_pb2

WITHOUT = Replacement.WITHOUT
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


DRAFTS = 4
"""Draft passes for each pass of the target: enough for a tree of three levels, and for the one behind it if that was foreseen."""

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
    pair = Pair(TARGET, DRAFT, seed=7, meddle=meddle, drafts=DRAFTS)
    sampling = Sampling(seed=0, max_tokens=TOKENS, temperature=TEMPERATURE)
    for session in range(num_sessions):
        options = replace(sampling, seed=100 + session)
        pair.open(session, options, speculation(verifier), PROMPT)
    pair.run()
    return pair


class Drawn:
    """Reads the wire: how often each token was drawn, by what it is said to be drawn from."""

    def __init__(self, replacement: Replacement) -> None:
        """Children of a node are drawn in this manner."""
        self._replacement = replacement
        self._seen: set[tuple[int, int, int]] = set()
        self._laws: dict[bytes, Float64s] = {}
        self._counts: dict[bytes, NDArray[np.int64]] = {}

    def __call__(self, wire: Wire) -> Wire:
        """Counts every tree once, and changes nothing."""
        for message in wire:
            for batch in frozen_candidates.decode(message.candidates, VOCAB):
                for one in batch.trees_E:
                    key = (one.handle, one.base_length, one.base_hash)
                    if key not in self._seen:
                        self._seen.add(key)
                        self._count(one.frozen)
        return wire

    def _count(self, frozen: FrozenTree) -> None:
        tree = frozen.tree
        left: dict[int, Float64s] = {}
        for token, parent, source in zip(
            tree.tokens_N, tree.parents_N, tree.sources_N, strict=True
        ):
            law_V = left.get(parent, frozen.rows[source].dense(VOCAB))
            cell = law_V.round(12).tobytes()
            self._laws[cell] = law_V
            self._counts.setdefault(cell, np.zeros(VOCAB, np.int64))[token] += 1
            left[parent] = without(law_V, token) if self._replacement is WITHOUT else law_V

    def p(self) -> float:
        """How probable counts at least as far from the laws are, if the tokens follow them."""
        statistic, degrees = 0.0, 0
        for cell, counts_V in self._counts.items():
            expected_V = self._laws[cell] * counts_V.sum()
            possible_V = expected_V > 0.0
            if counts_V[~possible_V].any():
                return 0.0
            if expected_V[possible_V].min() >= 8.0:
                terms_V = (counts_V - expected_V)[possible_V] ** 2 / expected_V[possible_V]
                statistic, degrees = statistic + terms_V.sum(), degrees + len(terms_V) - 1
        assert degrees > 10, "too little was drawn"
        return float(chi2.sf(statistic, degrees))


@cache
def read(verifier: str) -> tuple[Pair, Drawn]:
    """Texts of one mode that nobody meddles with, and what was drawn for them."""
    drawn = Drawn(VERIFIERS[verifier].drawn)
    return run(verifier, drawn), drawn


@pytest.mark.parametrize("verifier", FROZEN)
def test_texts_follow_the_targets_law(verifier: str) -> None:
    """Every verifier gives the target's joint law, with most tokens proposed by the drafter."""
    pair, _ = read(verifier)
    stats = [pair.stats(session) for session in range(NUM_SESSIONS)]
    rounds, accepted = sum(s.rounds for s in stats), sum(s.accepted for s in stats)
    assert rounds > 1000
    assert accepted > 0.7 * rounds
    assert transition_p(list(pair.texts.values())) > MIN_P


@pytest.mark.parametrize("verifier", FROZEN)
def test_tokens_are_drawn_from_the_laws_that_are_told(verifier: str) -> None:
    """In their order, each given its elder siblings: nothing was sorted, dropped, merged, chosen, or drawn from another row."""
    _, drawn = read(verifier)
    assert drawn.p() > MIN_P


def cooled(wire: Wire) -> Wire:
    """Tells the target laws of another temperature than the drafter drew from."""
    for message in wire:
        if message.candidates.frozen:
            message.candidates.laws = law_frame.encode(
                [
                    replace(
                        true,
                        rows=tuple(freeze(row.dense(VOCAB) ** COOLING, 0.0) for row in true.rows),
                    )
                    for true in told(message.candidates)
                ]
            )
    return wire


def told(batch: target_pb2.CandidateBatch) -> list[FrozenTree]:
    """The trees of a message."""
    nodes = [(tuple(one.tokens), [place - 1 for place in one.parents]) for one in batch.frozen]
    return law_frame.decode(batch.laws, nodes, VOCAB)


@pytest.mark.parametrize("verifier", FROZEN)
def test_laws_of_another_temperature_are_caught(verifier: str) -> None:
    """The comparison has the power to fail: wrong draft probabilities change the text's law, and it shows."""
    assert transition_p(list(run(verifier, cooled).texts.values())) < MIN_P
