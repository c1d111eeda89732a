"""The enumeration harness, the verifiers that need token ids only, and variants that it must catch.

What may be done to a tree and what may not is known from measurement on models like these; acceptance rates do not show
the difference, and some of the forbidden variants raise them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.actors.speculation.enumeration import (
    ROOT,
    Chance,
    Draft,
    Model,
    Probs,
    Tokens,
    Tree,
    Verify,
    all_trees,
    best_first,
    constant_model,
    enumerate_outcomes,
    fixed,
    independent,
    joint_law,
    mean_accepted,
    most_probable,
    normalised,
    random_model,
    remaining,
    round_law,
    target_law,
    total_variation,
    without_replacement,
)

from outrider.actors.speculation.coupled import walk

LENGTH = 3
"""Two candidate tokens and the verifier's own."""

EXACT = 1e-12
"""Total variation at most this is rounding."""

CAUGHT = 1e-3
"""A forbidden variant must be off by more than this: what a test of frequencies might still miss."""

SEEDS = (0, 1, 2)

DRAFTS: dict[str, Draft] = {
    "chain": independent(1, 1),
    "independent siblings": independent(2, 2),
    "siblings without replacement": without_replacement(2, 2),
    "uneven": without_replacement(3, 1),
    "deterministic": most_probable(2, 2),
    "best first": best_first(4, 2),
}


def error(draft: Draft, verify: Verify, seed: int) -> float:
    """Total variation between the joint law of three tokens and the target's."""
    target, drafter = random_model(seed), random_model(1000 + seed)
    law = round_law(draft, verify, target=target, drafter=drafter)
    return total_variation(joint_law(law, target, LENGTH), target_law(target, LENGTH))


# Verifiers.


def exact_match(chance: Chance, tree: Tree, target: Model) -> Tokens:
    """Draw the target's token at each node; descend while it is a child. This runs the service's own walk."""

    def draw(node: int) -> int:
        return chance.pick(target(tree.prefix(node)))

    return walk(tree.tokens, tree.parents, draw, limit=LENGTH).tokens


def one_hot(chance: Chance, tree: Tree, target: Model) -> Tokens:
    """Test the children of a node in turn with what is left of the target's row (EAGLE's rule)."""
    node = ROOT
    committed: Tokens = ()
    while True:
        row, accepted = target(committed), None
        tested: list[int] = []
        for child in tree.children(node):
            left = remaining(row, tested)
            if chance.flip(left[tree.tokens[child]]):
                accepted = child
                break
            tested.append(tree.tokens[child])
        if accepted is None:
            return (*committed, chance.pick(remaining(row, tested)))
        node, committed = accepted, (*committed, tree.tokens[accepted])


def sibling_test(draft_rows: Model, *, replace: bool, fault: str = "") -> Verify:
    """Recursive rejection sampling (Yang et al. 2024, arXiv 2401.06706), or one of its faulty variants."""

    def verify(chance: Chance, tree: Tree, target: Model) -> Tokens:
        node = ROOT
        committed: Tokens = ()
        while True:
            left, draft_left = target(committed), draft_rows(committed)
            accepted = None
            for child in tree.children(node):
                token = tree.tokens[child]
                # A token that the drafter could not have drawn is always accepted: the limit of the ratio.
                drawn_prob = draft_left[token]
                if chance.flip(min(1.0, left[token] / drawn_prob if drawn_prob else 1.0)):
                    accepted = child
                    break
                left = residual(left, draft_left)
                if not replace and drawn_prob < 1.0 - 1e-9:
                    draft_left = remaining(draft_left, [token])
            if accepted is None:
                row = target(committed) if fault == "residual replaced by the target" else left
                return (*committed, chance.pick(row))
            node, committed = accepted, (*committed, tree.tokens[accepted])

    return verify


def residual(row: Probs, draft_row: Probs) -> Probs:
    """norm([target - draft]+); the row itself where nothing is left, which has probability 0."""
    gaps = [max(0.0, prob - draft_prob) for prob, draft_prob in zip(row, draft_row, strict=True)]
    return normalised(gaps) if sum(gaps) > 0 else row


# The harness itself.


def test_enumeration_finds_every_outcome_with_its_weight() -> None:
    """Two dice as it were, the second thrown only if the first shows 0; impossible outcomes never run."""

    def program(chance: Chance) -> Tokens:
        first = chance.pick((0.5, 0.0, 0.5))
        return (first,) if first else (first, int(chance.flip(0.25)))

    assert enumerate_outcomes(program) == {(0, 1): 0.125, (0, 0): 0.375, (2,): 0.5}


def test_enumeration_refuses_what_is_not_a_distribution() -> None:
    """A verifier that forgets to normalise is told so, rather than weighted wrongly."""
    with pytest.raises(ValueError, match="not a distribution"):
        enumerate_outcomes(lambda chance: chance.pick((0.5, 0.4)))


def test_all_trees_are_all_trees() -> None:
    """(1 + 2^3)^3 different ones, the empty one among them."""
    trees = list(all_trees())
    assert len(trees) == len({(tree.tokens, tree.parents) for tree in trees}) == 729
    assert Tree(tokens=(), parents=()) in trees


@pytest.mark.parametrize("name", DRAFTS)
def test_drafts_have_weight_one(name: str) -> None:
    """Every tree that a drafter may draw is enumerated."""
    trees = enumerate_outcomes(lambda chance: DRAFTS[name](chance, random_model(3)))
    assert sum(trees.values()) == pytest.approx(1.0, abs=EXACT)
    assert len(trees) == 1 or name != "deterministic"


RUNNING_EXAMPLE = (constant_model(0.4, 0.3, 0.2, 0.1), constant_model(0.1, 0.2, 0.3, 0.4))


@pytest.mark.parametrize(
    ("draft", "replace", "accepted"),
    [
        (independent(1, 1), True, 0.96),
        (independent(2), True, 0.72),
        (independent(3), True, 0.768),
        (without_replacement(2), False, 0.7642857142857142),
        (without_replacement(3), False, 0.8402976190476190),
        (without_replacement(2, 1), False, 1.2228571428571429),
    ],
)
def test_sibling_test_accepts_as_much_as_is_known(
    draft: Draft, replace: bool, accepted: float
) -> None:
    """Values of the running example, computed elsewhere: harness and rule agree with them."""
    target, drafter = RUNNING_EXAMPLE
    law = round_law(draft, sibling_test(drafter, replace=replace), target=target, drafter=drafter)
    assert mean_accepted(law) == pytest.approx(accepted, abs=1e-6)


@pytest.mark.parametrize(
    ("draft", "accepted"), [(independent(2), 0.35), (without_replacement(2), 0.4194444444444444)]
)
def test_exact_match_accepts_as_much_as_is_known(draft: Draft, accepted: float) -> None:
    """The mass of the children under the target."""
    target, drafter = RUNNING_EXAMPLE
    law = round_law(draft, exact_match, target=target, drafter=drafter)
    assert mean_accepted(law) == pytest.approx(accepted, abs=1e-6)


# What is exact.


@pytest.mark.parametrize("verify", [exact_match, one_hot])
def test_token_only_verifiers_are_exact_for_every_tree(verify: Verify) -> None:
    """All 729 trees over three tokens to depth 2: the output is distributed as the target alone."""
    target = random_model(7)
    expected = target_law(target, LENGTH)
    for tree in all_trees():
        law = round_law(fixed(tree), verify, target=target, drafter=target)
        assert total_variation(joint_law(law, target, LENGTH), expected) < EXACT


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("verify", "name"),
    [(exact_match, name) for name in DRAFTS]
    + [(one_hot, name) for name in DRAFTS if name != "independent siblings"],
)
def test_token_only_verifiers_are_exact_for_every_drafter(
    verify: Verify, name: str, seed: int
) -> None:
    """However the tree is drawn, as long as it is drawn before the target's randomness.

    The one-hot rule is for distinct siblings.
    """
    assert error(DRAFTS[name], verify, seed) < EXACT


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("draft", "replace"),
    [
        (independent(1, 1), True),
        (independent(2, 2), True),
        (without_replacement(2, 2), False),
        (without_replacement(3, 1), False),
        (best_first(4, 2), False),
    ],
)
def test_sibling_test_is_exact(draft: Draft, replace: bool, seed: int) -> None:
    """With the rule that belongs to how siblings were drawn, and the distribution they were drawn from."""
    assert error(draft, sibling_test(random_model(1000 + seed), replace=replace), seed) < EXACT


# Coupled sampling: the drafter sees the noise, so the tree may depend on the target's own draws.


class Draws:
    """The target's draws: fixed by prefix once drawn, as noise that is a function of position fixes them."""

    def __init__(self, chance: Chance, target: Model) -> None:
        self._chance = chance
        self._target = target
        self._known: dict[Tokens, int] = {}

    def after(self, prefix: Tokens) -> int:
        """The draw after a prefix: the same whenever it is asked for."""
        if prefix not in self._known:
            self._known[prefix] = self._chance.pick(self._target(prefix))
        return self._known[prefix]

    def plain(self, prefix: Tokens) -> Tokens:
        """What plain decoding gives, to the full length."""
        while len(prefix) < LENGTH:
            prefix = (*prefix, self.after(prefix))
        return prefix


Adversary = Callable[[Tokens], Tree]
"""Makes a tree, knowing the three tokens that plain decoding will give."""


def all_right(tokens: Tokens) -> Tree:
    """Candidates that will all be accepted."""
    return Tree(tokens=tokens[:2], parents=(ROOT, 0))


def all_wrong(tokens: Tokens) -> Tree:
    """Candidates that will all be refused."""
    return Tree(tokens=((tokens[0] + 1) % 3, tokens[1]), parents=(ROOT, 0))


def right_if_it_likes_the_second(tokens: Tokens) -> Tree:
    """A first candidate that is right only if the token after it will be token 0."""
    return all_right(tokens) if tokens[1] == 0 else all_wrong(tokens)


def right_if_it_likes_the_third(tokens: Tokens) -> Tree:
    """A chain that is right only if the token after it will be token 2."""
    return all_right(tokens) if tokens[2] == 2 else Tree(tokens=tokens[:1], parents=(ROOT,))


ADVERSARIES = (all_right, all_wrong, right_if_it_likes_the_second, right_if_it_likes_the_third)


def coupled_round(adversary: Adversary, target: Model, *, fixed_by_position: bool) -> float:
    """Total variation of three tokens: a round on the adversary's tree, then plain decoding.

    If the noise is not fixed by position, the decoding after the round draws anew.
    """

    def program(chance: Chance) -> Tokens:
        draws = Draws(chance, target)
        tree = adversary(draws.plain(()))
        committed = walk(
            tree.tokens, tree.parents, lambda node: draws.after(tree.prefix(node)), limit=LENGTH
        ).tokens
        later = draws if fixed_by_position else Draws(chance, target)
        return later.plain(committed)

    return total_variation(enumerate_outcomes(program), target_law(target, LENGTH))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_coupled_sampling_is_exact_whatever_the_drafter_knows(
    adversary: Adversary, seed: int
) -> None:
    """A drafter that knows the draws and wants to bias the text cannot."""
    assert coupled_round(adversary, random_model(seed), fixed_by_position=True) < EXACT


@pytest.mark.parametrize("adversary", [right_if_it_likes_the_second, right_if_it_likes_the_third])
def test_noise_that_is_not_fixed_by_position_is_caught(adversary: Adversary) -> None:
    """Forbidden: fresh noise each round, shown to the drafter. It can then choose which draws count."""
    assert coupled_round(adversary, random_model(1), fixed_by_position=False) > CAUGHT


@pytest.mark.parametrize("seed", SEEDS)
def test_coupled_output_is_that_of_plain_decoding_for_every_tree(seed: int) -> None:
    """Not only in distribution: for every tree and every way the draws may fall, the same tokens."""
    target = random_model(seed)
    for tree in all_trees():

        def is_plain(chance: Chance, tree: Tree = tree) -> bool:
            draws = Draws(chance, target)
            result = walk(
                tree.tokens, tree.parents, lambda node: draws.after(tree.prefix(node)), limit=LENGTH
            )
            return draws.plain(()) == draws.plain(result.tokens)

        assert enumerate_outcomes(is_plain).keys() == {True}


# What is forbidden, and must be caught.


def redrawn_after_a_miss(chance: Chance, tree: Tree, target: Model) -> Tokens:
    """A draw that is not a child is thrown away and drawn once more."""
    node = ROOT
    committed: Tokens = ()
    while True:
        row = target(committed)
        token = chance.pick(row)
        child = next((c for c in tree.children(node) if tree.tokens[c] == token), None)
        if child is None:
            return (*committed, chance.pick(row))
        node, committed = child, (*committed, token)


def longer_of_two(chance: Chance, tree: Tree, target: Model) -> Tokens:
    """The tree is verified twice and the longer result kept."""
    first, second = exact_match(chance, tree, target), exact_match(chance, tree, target)
    return first if len(first) >= len(second) else second


def one_hot_unnormalised(chance: Chance, tree: Tree, target: Model) -> Tokens:
    """Children are tested with the target's row as it was, not with what is left of it."""
    node = ROOT
    committed: Tokens = ()
    while True:
        row, children = target(committed), tree.children(node)
        accepted = next((c for c in children if chance.flip(row[tree.tokens[c]])), None)
        if accepted is None:
            tested = [tree.tokens[child] for child in children]
            return (*committed, chance.pick(remaining(row, tested) if len(tested) < 3 else row))
        node, committed = accepted, (*committed, tree.tokens[accepted])


def matched_but_not_emitted(chance: Chance, tree: Tree, target: Model) -> Tokens:
    """After a match at the last level the bonus token is drawn with the row before it."""
    tokens = exact_match(chance, tree, target)
    return tokens if len(tokens) < 2 else (*tokens[:-1], chance.pick(target(tokens[:-2])))


@pytest.mark.parametrize(
    "verify", [redrawn_after_a_miss, longer_of_two, one_hot_unnormalised, matched_but_not_emitted]
)
def test_faulty_token_only_verifiers_are_caught(verify: Verify) -> None:
    """On every one of the models."""
    assert min(error(without_replacement(2, 1), verify, seed) for seed in SEEDS) > CAUGHT


def low_children_dropped(chance: Chance, model: Model) -> Tree:
    """A candidate that the drafter finds improbable is removed after it was drawn."""
    tree = independent(1, 1)(chance, model)
    kept = [node for node in (0, 1) if model(tree.prefix(node)[:-1])[tree.tokens[node]] >= 0.25]
    depth = 0 if 0 not in kept else len(kept)
    return Tree(tokens=tree.tokens[:depth], parents=tree.parents[:depth])


def likelier_of_two(chance: Chance, model: Model) -> Tree:
    """Two candidates are drawn and the one that the drafter finds likelier is sent."""
    row = model(())
    first, second = chance.pick(row), chance.pick(row)
    return Tree(tokens=(max((first, second), key=row.__getitem__),), parents=(ROOT,))


def sorted_siblings(chance: Chance, model: Model) -> Tree:
    """Siblings drawn without replacement are sent in descending order of draft probability."""
    row = model(())
    tree = without_replacement(2)(chance, model)
    return Tree(
        tokens=tuple(sorted(tree.tokens, key=lambda token: -row[token])), parents=tree.parents
    )


@pytest.mark.parametrize(
    ("draft", "replace", "fault"),
    [
        (low_children_dropped, True, ""),
        (likelier_of_two, True, ""),
        (sorted_siblings, False, ""),
        (most_probable(2, 2), False, ""),
        (independent(2, 2), False, ""),
        (without_replacement(2, 2), True, ""),
        (independent(1, 1), True, "residual replaced by the target"),
    ],
)
def test_faulty_use_of_the_sibling_test_is_caught(draft: Draft, replace: bool, fault: str) -> None:
    """Trees changed by content after drawing, rules of the other kind of siblings, a wrong residual."""
    worst = max(
        error(draft, sibling_test(random_model(1000 + seed), replace=replace, fault=fault), seed)
        for seed in SEEDS
    )
    assert worst > CAUGHT


@pytest.mark.parametrize("draft", [low_children_dropped, likelier_of_two, sorted_siblings])
def test_exact_match_forgives_what_the_sibling_test_does_not(draft: Draft) -> None:
    """Token-only verification is exact even for a drafter that breaks the rules."""
    assert max(error(draft, exact_match, seed) for seed in SEEDS) < EXACT
