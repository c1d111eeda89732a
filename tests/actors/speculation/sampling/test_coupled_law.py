"""Coupled sampling by enumeration: drafters see the noise, so trees may depend on the target's own draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.actors.speculation.trees.branches import (
    OUTPUT,
    Models,
    Prefix,
    all_trees,
    distance,
    every_outcome,
    prefixes,
    random_models,
)
from tests.actors.speculation.verifiers.checks import EXACT, VISIBLE

from outrider.actors.speculation.sampling.random_acts import Decisions
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.coupled_draws import walk

SEEDS = (0, 1, 2)


class Draws:
    """The target's draws: fixed by prefix once drawn, as noise that is a function of position fixes them."""

    def __init__(self, decisions: Decisions, models: Models) -> None:
        self._decisions = decisions
        self._models = models
        self._known: dict[Prefix, int] = {}

    def after(self, prefix: Prefix) -> int:
        """The draw after a prefix: the same whenever it is asked for."""
        if prefix not in self._known:
            self._known[prefix] = self._decisions.draw(self._models.target[prefix])
        return self._known[prefix]

    def plain(self, prefix: Prefix) -> Prefix:
        """What plain decoding gives, to the full length."""
        while len(prefix) < OUTPUT:
            prefix = (*prefix, self.after(prefix))
        return prefix

    def verified(self, tree: DraftTree) -> Prefix:
        """What the service's own walk commits."""
        contexts = prefixes(tree.tokens_N, tree.parents_N)
        return walk(
            tree.tokens_N, tree.parents_N, lambda node: self.after(contexts[node + 1]), limit=OUTPUT
        ).tokens


Adversary = Callable[[Prefix], DraftTree]
"""Makes a tree, knowing the three tokens that plain decoding will give."""


def chain(*tokens: int) -> DraftTree:
    """One token after the other."""
    return DraftTree(tokens_N=tokens, parents_N=tuple(range(-1, len(tokens) - 1)))


def all_right(tokens: Prefix) -> DraftTree:
    """Candidates that will all be accepted."""
    return chain(*tokens[:2])


def all_wrong(tokens: Prefix) -> DraftTree:
    """Candidates that will all be refused."""
    return chain((tokens[0] + 1) % 3, tokens[1])


def right_if_it_likes_the_second(tokens: Prefix) -> DraftTree:
    """A first candidate that is right only if the token after it will be token 0."""
    return all_right(tokens) if tokens[1] == 0 else all_wrong(tokens)


def right_if_it_likes_the_third(tokens: Prefix) -> DraftTree:
    """A chain that is right only if the token after it will be token 2."""
    return all_right(tokens) if tokens[2] == 2 else chain(tokens[0])


ADVERSARIES = (all_right, all_wrong, right_if_it_likes_the_second, right_if_it_likes_the_third)


def error(adversary: Adversary, models: Models, *, is_fixed_by_position: bool) -> float:
    """Total variation of three tokens: a round on the adversary's tree, then plain decoding.

    If the noise is not fixed by position, the decoding after the round draws again.
    """

    def run(decisions: Decisions) -> Prefix:
        draws = Draws(decisions, models)
        committed = draws.verified(adversary(draws.plain(())))
        later = draws if is_fixed_by_position else Draws(decisions, models)
        return later.plain(committed)

    law: dict[Prefix, float] = {}
    for tokens, chance in every_outcome(run):
        law[tokens] = law.get(tokens, 0.0) + chance
    return distance(law, models.truth)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_law_holds_whatever_the_drafter_knows(adversary: Adversary, seed: int) -> None:
    """A drafter that knows the draws and wants to bias the text cannot."""
    assert error(adversary, random_models(seed), is_fixed_by_position=True) < EXACT


@pytest.mark.parametrize("adversary", [right_if_it_likes_the_second, right_if_it_likes_the_third])
def test_noise_that_is_not_fixed_by_position_is_caught(adversary: Adversary) -> None:
    """Forbidden: fresh noise each round, shown to the drafter. It can then choose which draws count."""
    assert error(adversary, random_models(1), is_fixed_by_position=False) > VISIBLE


@pytest.mark.parametrize("seed", SEEDS)
def test_every_tree_gives_the_tokens_of_plain_decoding(seed: int) -> None:
    """Not only in distribution: for every tree and every way the draws may fall, the same tokens."""
    models = random_models(seed)
    for draft in all_trees():

        def is_plain(decisions: Decisions, tree: DraftTree = draft.tree) -> bool:
            draws = Draws(decisions, models)
            return draws.plain(()) == draws.plain(draws.verified(tree))

        assert {same for same, _ in every_outcome(is_plain)} == {True}
