"""Blocks of tokens, to verifiers that divide by their laws: which row may be told for a token, and which may not.

A row is right if it is the law of its token given all that may decide about the tokens before it. A diffusion drafter that
fills a block from right to left draws a token given a later one; a frame of CTC says nothing of the string that its path
collapses to. Both would accept, and change the output. Matching the target's own draws needs no row, so any block may be
proposed to it, and it is all that these methods serve.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.actors.draft.ctc.test_ctc import collapsed, enumerated, prefixes
from tests.actors.speculation.trees.branches import (
    VOCAB,
    committed,
    distance,
    draft_of,
    every_outcome,
    joint_law,
    random_models,
)
from tests.actors.speculation.trees.told_draft import ToldDraft
from tests.actors.speculation.verifiers.checks import EXACT, VISIBLE, check_of

from outrider.actors.draft.choice.drafter_registry import DRAFTERS, served_verifiers
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import Replacement

SEEDS = range(3)
CHAINS = ("speculative_sampling", "block", "mcsd_with_replacement")
TOKEN_LEVEL = CHAINS[:1]
"""A string of CTC has a length of its own, which the other two would have to know the law of."""

Block = tuple[list[int], list[Float64s]]
"""Tokens one after another, and the row told for each."""

Drafter = Callable[[int, Decisions], Block]
"""Draws a block of the net of a seed."""


def error(verifier: str, drafter: Drafter) -> float:
    """Greatest total variation between the output and the target."""
    found = 0.0
    for seed in SEEDS:
        models = random_models(seed)

        def run(decisions: Decisions, seed: int = seed) -> ToldDraft:
            tokens, rows = drafter(seed, decisions)
            chain = draft_of(tokens, range(-1, len(tokens) - 1), Replacement.WITH)
            return ToldDraft(chain.tree, chain.contexts, tuple(rows))

        outcomes = committed(models, list(every_outcome(run)), check_of(verifier))
        found = max(found, distance(joint_law(models, outcomes), models.truth))
    return found


# A denoiser of two places.

MASK = -1


def denoised(seed: int, place: int, other: int) -> Float64s:
    """What a net says of a place, given the token at the other one, or that it is masked."""
    return np.random.default_rng((seed, place, other + 1)).dirichlet(np.ones(VOCAB))


def one_step(seed: int, decisions: Decisions) -> Block:
    """Both places at once, each from its own row."""
    rows = [denoised(seed, place, MASK) for place in (0, 1)]
    return [decisions.draw(row) for row in rows], rows


def from_the_left(seed: int, decisions: Decisions) -> Block:
    """The first place, then the second given it."""
    first_V = denoised(seed, 0, MASK)
    token = decisions.draw(first_V)
    second_V = denoised(seed, 1, token)
    return [token, decisions.draw(second_V)], [first_V, second_V]


def chosen_then_drawn(seed: int, decisions: Decisions) -> Block:
    """The second place gets its likeliest token; the first is drawn given it."""
    chosen = int(denoised(seed, 1, MASK).argmax())
    first_V = denoised(seed, 0, chosen)
    return [decisions.draw(first_V), chosen], [first_V, np.eye(VOCAB)[chosen]]


def from_the_right(seed: int, decisions: Decisions) -> Block:
    """The second place, then the first given it; the rows are those of the steps."""
    second_V = denoised(seed, 1, MASK)
    token = decisions.draw(second_V)
    first_V = denoised(seed, 0, token)
    return [decisions.draw(first_V), token], [first_V, second_V]


def from_the_right_summed(seed: int, decisions: Decisions) -> Block:
    """The same block; the row of the first place is summed over what the second may be."""
    tokens, (_, second_V) = from_the_right(seed, decisions)
    given = np.stack([denoised(seed, 0, token) for token in range(VOCAB)])
    return tokens, [second_V @ given, second_V]


# Frames of CTC.


def frames_of(seed: int) -> torch.Tensor:
    """Log probabilities of three frames [U, V + 1], float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, VOCAB + 1, generator=generator).double().log_softmax(-1)


def string_of(seed: int, decisions: Decisions) -> tuple[list[int], list[int]]:
    """The first two tokens of a drawn path's string, and the frame where each is first said."""
    path = tuple(decisions.draw(row.exp().numpy()) for row in frames_of(seed))
    said = [u for u, one in enumerate(path) if one != VOCAB and (u == 0 or one != path[u - 1])]
    return list(collapsed(path, VOCAB))[:2], said[:2]


def by_prefixes(seed: int, decisions: Decisions) -> Block:
    """Rows are the shares of the strings that go on with each token."""
    tokens, _ = string_of(seed, decisions)
    begin = prefixes(enumerated(frames_of(seed)))
    rows = []
    for depth in range(len(tokens)):
        mass_V = np.array([begin.get((*tokens[:depth], v), 0.0) for v in range(VOCAB)])
        rows.append(mass_V / mass_V.sum())
    return tokens, rows


def by_frames(seed: int, decisions: Decisions) -> Block:
    """Rows are those of the frames, without blank."""
    tokens, said = string_of(seed, decisions)
    rows = [frames_of(seed)[u, :VOCAB].softmax(-1).numpy() for u in said]
    return tokens, rows


RIGHT = [
    *((verifier, one) for verifier in CHAINS for one in (one_step, from_the_left)),
    *((verifier, chosen_then_drawn) for verifier in CHAINS),
    *((verifier, by_prefixes) for verifier in TOKEN_LEVEL),
]
WRONG = [
    *((verifier, one) for verifier in CHAINS for one in (from_the_right, from_the_right_summed)),
    *((verifier, by_frames) for verifier in TOKEN_LEVEL),
]


@pytest.mark.parametrize(("verifier", "drafter"), RIGHT)
def test_the_law_given_what_stands_before_is_exact(verifier: str, drafter: Drafter) -> None:
    """One step, steps from the left, a last step below chosen tokens; shares of the strings of frames."""
    assert error(verifier, drafter) < EXACT


@pytest.mark.parametrize(("verifier", "drafter"), WRONG)
def test_other_rows_are_caught(verifier: str, drafter: Drafter) -> None:
    """Steps from the right, with the row of the step or with its mean; the row of a frame."""
    assert error(verifier, drafter) > VISIBLE


@pytest.mark.parametrize("drafter", [from_the_right, by_frames])
def test_a_block_without_rows_is_exact(drafter: Drafter) -> None:
    """However it was filled."""
    assert error("exact_match", drafter) < EXACT


@pytest.mark.parametrize("method", ["ctc", "diffusion", "dspark"])
def test_no_verifier_that_divides_is_served_with_blocks(method: str) -> None:
    """Their trees are ranked by the target's noise and filled in any order: nothing that they could tell would be the law of a token."""
    served = served_verifiers(DRAFTERS[method])
    assert served
    assert not any(VERIFIERS[verifier].needs_frozen_tree for verifier in served)
