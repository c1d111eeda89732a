"""Which ways of stopping a draft, and of beginning it, keep the law of the text: by enumeration.

Frozen trees are drawn with the real sampler, by the real formulas, and tested by the shipped verifiers
(`branches.py`); the scheme of Lu et al. is written down again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from tests.actors.speculation.sampling.test_coupled_law import SEEDS, Draws
from tests.actors.speculation.trees.branches import (
    OUTPUT,
    VOCAB,
    Draft,
    Grow,
    Growing,
    Models,
    Prefix,
    committed,
    distance,
    draft_of,
    drafts,
    every_outcome,
    joint_law,
    prefixes,
    random_models,
    static,
)
from tests.actors.speculation.verifiers.checks import EXACT, VISIBLE, check_of

from outrider.actors.draft.stopping.lengths import (
    ConfidenceLength,
    DecisionLength,
    LengthPolicy,
)
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.stop_model import NUM_FEATURES, NUM_HIDDEN, DecisionModel
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verify.residual import ratio, residual, without

FROZEN = [
    verifier
    for verifier, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless
]


def decisive_model() -> DecisionModel:
    """Scores a row by its greatest probability: above 0.5 from about 0.6 on."""
    hidden_FH = np.zeros((NUM_FEATURES, NUM_HIDDEN), dtype=np.float32)
    hidden_FH[0, 0] = 10.0
    output_H = np.zeros(NUM_HIDDEN, dtype=np.float32)
    output_H[0] = 1.0
    return DecisionModel(
        hidden_FH=hidden_FH,
        hidden_bias_H=np.zeros(NUM_HIDDEN, dtype=np.float32),
        output_H=output_H,
        output_bias=-6.0,
    )


POLICIES: dict[str, LengthPolicy] = {
    "confidence": ConfidenceLength(longest=2, aggressiveness=2.0),
    "decision": DecisionLength(rater=decisive_model().rate, threshold=0.5),
}


def rating(name: str, row_V: Float64s) -> float:
    """What a policy rates a row of draft probabilities."""
    with np.errstate(divide="ignore"):
        scores_1V = torch.from_numpy(np.log(row_V)).float().unsqueeze(0)
    (found,) = POLICIES[name].rater(scores_1V).tolist()
    return float(found)


def branching(verifier: str) -> int:
    """Children of a node in these tests."""
    return 1 if VERIFIERS[verifier].is_chain_only else 2


def replacement_of(verifier: str) -> Replacement:
    """One that the verifier allows."""
    return min(VERIFIERS[verifier].replacements)


DEEP_AND_SHALLOW = (1, 2)
"""Seeds of models: the policies give the first two levels, the second one."""


def by_the_base(name: str, count: int) -> Grow:
    """As the service does it: the row of the base says how many levels there will be."""

    def grow(growing: Growing) -> None:
        depth = POLICIES[name].frozen_depth(rating(name, growing.row(-1)), 2)
        static(*(count, 1)[:depth])(growing)

    return grow


def by_what_was_drawn(name: str, count: int) -> Grow:
    """As in a growing tree: the second level depends on the rows behind the tokens of the first."""

    def grow(growing: Growing) -> None:
        policy, root = POLICIES[name], rating(name, growing.row(-1))
        for node in growing.draw_children(-1, count):
            last = rating(name, growing.row(node))
            if policy.goes_on(depth=1, mean=(root + last) / 2, last=last):
                growing.draw_children(node, 1)

    return grow


def off(verifier: str, models: Models, law: Sequence[tuple[Draft, float]]) -> float:
    """Total variation between the output and the target."""
    outcomes = committed(models, law, check_of(verifier))
    return distance(joint_law(models, outcomes), models.truth)


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("name", POLICIES)
def test_lengths_settled_by_the_base_are_exact(verifier: str, name: str) -> None:
    """For every verifier of frozen trees; the policies do give trees of both depths."""
    depths = set()
    for seed in DEEP_AND_SHALLOW:
        models = random_models(seed)
        law = drafts(models, by_the_base(name, branching(verifier)), replacement_of(verifier))
        depths |= {max(map(len, prefixes(d.tree.tokens_N, d.tree.parents_N))) for d, _ in law}
        assert off(verifier, models, law) < EXACT
    assert depths == {1, 2}


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("name", POLICIES)
def test_stopping_by_what_was_drawn_is_exact_where_every_tree_is_verified(
    verifier: str, name: str
) -> None:
    """Kept tokens may decide what is drawn below and beside them: nothing is wrong with the tree itself."""
    models = random_models(3)
    law = drafts(models, by_what_was_drawn(name, branching(verifier)), replacement_of(verifier))
    assert off(verifier, models, law) < EXACT


def off_if_only_short_trees_are_in_time(verifier: str, models: Models, grow: Grow) -> float:
    """The same, if a tree of two levels comes too late and a token is decoded plainly in its place."""
    law: dict[Draft, float] = {}
    nothing = draft_of([], [], replacement_of(verifier))
    for draft, chance in drafts(models, grow, replacement_of(verifier)):
        is_short = max(draft.tree.parents_N) < 0
        sent = draft if is_short else nothing
        law[sent] = law.get(sent, 0.0) + chance
    return off(verifier, models, list(law.items()))


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("name", POLICIES)
def test_stopping_by_what_was_drawn_is_caught_where_the_target_does_not_wait(
    verifier: str, name: str
) -> None:
    """A service does not wait for ever: then tokens that make trees short are verified more often than others.

    This is why frozen trees take their length from the row of the base: which is exact with the same lateness.
    """
    worst = 0.0
    for seed in DEEP_AND_SHALLOW:
        models, count = random_models(seed), branching(verifier)
        worst = max(
            worst,
            off_if_only_short_trees_are_in_time(verifier, models, by_what_was_drawn(name, count)),
        )
        settled = by_the_base(name, count)
        assert off_if_only_short_trees_are_in_time(verifier, models, settled) < EXACT
    assert worst > VISIBLE


@pytest.mark.parametrize("verifier", FROZEN)
def test_dropping_what_the_decision_model_dislikes_is_caught(verifier: str) -> None:
    """A token below the first candidate, drawn already, is taken back because its own row has a low score."""
    count = branching(verifier)

    def without_disliked(growing: Growing) -> Draft:
        nodes = [
            node
            for node in range(len(growing.tokens))
            if node != count or rating("decision", growing.row(node)) > 0.5
        ]
        tokens, parents = growing.tokens, growing.parents
        return draft_of(
            [tokens[node] for node in nodes],
            [parents[node] for node in nodes],
            growing.replacement,
        )

    worst = 0.0
    for models in map(random_models, range(3)):
        law = drafts(models, static(count, 1), replacement_of(verifier), without_disliked)
        worst = max(worst, off(verifier, models, law))
    assert worst > VISIBLE


def likeliest_of_the_target(growing: Growing, count: int) -> None:
    """The target's most probable tokens."""
    order = np.argsort(-growing.models.target[()], kind="stable")
    growing.tokens += order[:count].tolist()
    growing.parents += [-1] * count


def drawn_from_the_target(growing: Growing, count: int) -> None:
    """Distinct draws from the target's row, as Lu et al. make them."""
    left = np.array(growing.models.target[()])
    for _ in range(count):
        token = growing.decisions.draw(left)
        left[token] = 0.0
        growing.tokens.append(token)
        growing.parents.append(-1)


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("roots", [likeliest_of_the_target, drawn_from_the_target])
def test_roots_of_the_target_are_caught_in_frozen_trees(
    verifier: str, roots: Callable[[Growing, int], None]
) -> None:
    """They are not draws from the row that comes with the tree: refused by the gateway for these verifiers."""
    count = branching(verifier)
    worst = max(
        off(
            verifier,
            models,
            drafts(models, lambda growing: roots(growing, count), replacement_of(verifier)),
        )
        for models in map(random_models, range(2))
    )
    assert worst > VISIBLE


@pytest.mark.parametrize("roots", [likeliest_of_the_target, drawn_from_the_target])
def test_exact_match_takes_roots_of_the_target(roots: Callable[[Growing, int], None]) -> None:
    """Where the target's own draw decides, it does not matter who proposed."""
    models = random_models(1)
    law = drafts(models, lambda growing: roots(growing, 2), Replacement.WITHOUT)
    assert off("exact_match", models, law) < EXACT


# Lu et al.: target-initialised trees with a decision model, as the authors verify them, and as they are verified here.


def goes_on(models: Models, prefix: Prefix) -> bool:
    """What the decision model says of drafting after a prefix."""
    return rating("decision", models.draft[prefix].dense(VOCAB)) > 0.4


def authors_round(
    decisions: Decisions, models: Models, *, num_roots: int, num_drafts: int
) -> Prefix:
    """One round as in the authors' program, then plain decoding to the full length.

    The target's row gives distinct roots; below each, candidates are drawn as long as the decision model wishes and are
    tested independently; the longest accepted path is kept, the first one on ties; its last row, or what is left of it,
    gives the next token.
    """
    roots: list[int] = []
    left_V = models.target[()]
    for _ in range(num_roots):
        roots.append(decisions.draw(left_V))
        left_V = without(left_V, roots[-1])
    best: Prefix = ()
    following_V = models.target[()]
    for root in roots:
        row_V, draft_V = models.target[(root,)], models.draft[(root,)].dense(VOCAB)
        path: Prefix = (root,)
        left_V = row_V
        for _ in range(num_drafts if goes_on(models, (root,)) else 0):
            token = decisions.draw(draft_V)
            if decisions.accept(ratio(row_V[token], draft_V[token])):
                path, left_V = (root, token), models.target[(root, token)]
                break
            left_V = residual(row_V, draft_V)
        if len(path) > len(best):
            best, following_V = path, left_V
    tokens = (*best, decisions.draw(following_V))
    while len(tokens) < OUTPUT:
        tokens = (*tokens, decisions.draw(models.target[tokens]))
    return tokens[:OUTPUT]


def off_as_the_authors_do(models: Models, *, num_roots: int, num_drafts: int) -> float:
    """Total variation of such rounds."""
    law: dict[Prefix, float] = {}
    for tokens, chance in every_outcome(
        lambda d: authors_round(d, models, num_roots=num_roots, num_drafts=num_drafts)
    ):
        law[tokens] = law.get(tokens, 0.0) + chance
    return distance(law, models.truth)


@pytest.mark.parametrize(("num_roots", "num_drafts"), [(2, 1), (3, 1), (1, 2), (2, 2)])
def test_the_authors_own_version_is_caught(num_roots: int, num_drafts: int) -> None:
    """Choosing a root by what becomes of it biases the root; so does testing several drafts independently."""
    worst = max(
        off_as_the_authors_do(random_models(seed), num_roots=num_roots, num_drafts=num_drafts)
        for seed in SEEDS
    )
    assert worst > VISIBLE


def test_one_root_with_one_draft_is_speculative_sampling() -> None:
    """What is left of the authors' version without its choices is exact: so the harness is not too strict."""
    for seed in SEEDS:
        assert off_as_the_authors_do(random_models(seed), num_roots=1, num_drafts=1) < EXACT


def our_tree(draws: Draws, models: Models) -> DraftTree:
    """The same tree here: two roots of the target, below each what the decision model lets be drafted, noise and all."""
    roots = np.argsort(-models.target[()], kind="stable")[:2].tolist()
    tokens, parents = list(roots), [-1, -1]
    for node, root in enumerate(roots):
        if goes_on(models, (root,)):
            # The drafter knows the noise, so its candidate may depend on the very draw: here it is that draw, or not.
            drawn = draws.after((root,))
            is_likely = models.draft[(root,)].dense(VOCAB)[drawn] > 0.3
            tokens.append(drawn if is_likely else (drawn + 1) % VOCAB)
            parents.append(node)
    return DraftTree(tokens_N=tuple(tokens), parents_N=tuple(parents))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_tree_under_coupled_sampling_is_exact(seed: int) -> None:
    """Not only in law: however the draws fall, the tokens are those of plain decoding."""
    models = random_models(seed)

    def run(decisions: Decisions) -> tuple[Prefix, bool]:
        draws = Draws(decisions, models)
        text = draws.plain(draws.verified(our_tree(draws, models)))
        return text, text == draws.plain(())

    law: dict[Prefix, float] = {}
    for (text, is_plain), chance in every_outcome(run):
        assert is_plain
        law[text] = law.get(text, 0.0) + chance
    assert distance(law, models.truth) < EXACT
