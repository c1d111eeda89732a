"""What may not be done to a tree, a row or a rule: each such variant changes the output, and the enumeration sees it.

Several accept more than the exact method, so no acceptance rate would show them. The same harness finds the exact
verifiers within 1e-12 (`test_exactness.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import (
    Alter,
    Branches,
    Check,
    Draft,
    Grow,
    Growing,
    Models,
    RowsSent,
    committed,
    deep_models,
    distance,
    draft_of,
    drafts,
    joint_law,
    random_models,
    static,
)
from tests.actors.speculation.verifiers.checks import VISIBLE, check_of

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, UniformDecisions
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verifiers import block, mcsd, speculative_sampling, traversal
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.residual import excess, ratio, residual, without

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT
SS, BLOCK, TRAVERSAL = "speculative_sampling", "block", "traversal"
MCSD, MCSD_WO = "mcsd_with_replacement", "mcsd_without_replacement"
TRAVERSAL_WITH = "traversal_with_replacement"
INFER, KSEQ, CANONICAL = "specinfer", "kseq", "canonical"
SEEDS = range(4)


def own_rows(models: Models, draft: Draft) -> list[Float64s]:
    """The rows that were sampled from."""
    return draft.rows(models)


def worst(
    check: Check,
    grow: Grow,
    replacement: Replacement,
    alter: Alter = Growing.finish,
    rows_sent: RowsSent = own_rows,
    models_of: Callable[[int], Models] = random_models,
) -> float:
    """Greatest total variation over some models."""
    found = 0.0
    for seed in SEEDS:
        models = models_of(seed)
        outcomes = committed(models, drafts(models, grow, replacement, alter), check, rows_sent)
        found = max(found, distance(joint_law(models, outcomes), models.truth))
    return found


def kept_only(growing: Growing, keep: Sequence[int]) -> Draft:
    """The tree of some nodes and whatever of their descendants is among them."""
    new = {-1: -1}
    tokens: list[int] = []
    parents: list[int] = []
    for node in keep:
        if growing.parents[node] in new:
            new[node] = len(tokens)
            tokens.append(growing.tokens[node])
            parents.append(new[growing.parents[node]])
    return draft_of(tokens, parents, growing.replacement)


def probability(growing: Growing, node: int) -> float:
    """The draft's probability of a node given its parent."""
    return float(growing.row(growing.parents[node])[growing.tokens[node]])


def path_probability(growing: Growing, node: int) -> float:
    """The draft's probability of a node's path."""
    result = 1.0
    while node >= 0:
        result *= probability(growing, node)
        node = growing.parents[node]
    return result


# Trees that were changed after drawing.


def drop_improbable(growing: Growing) -> Draft:
    """Nodes with a small draft probability are removed."""
    nodes = range(len(growing.tokens))
    return kept_only(growing, [node for node in nodes if probability(growing, node) >= 0.25])


def keep_likelier(growing: Growing) -> Draft:
    """Of each pair of siblings only the likelier is sent."""
    likelier = [
        max(growing.children(parent), key=lambda node: probability(growing, node))
        for parent in sorted(set(growing.parents))
    ]
    return kept_only(growing, sorted(likelier))


def keep_what_the_target_likes(growing: Growing) -> Draft:
    """Of each pair of siblings only the one that the target finds likelier is sent."""
    target = growing.models.target
    liked = [
        max(
            growing.children(parent),
            key=lambda node: float(target[growing.context(parent)][growing.tokens[node]]),
        )
        for parent in sorted(set(growing.parents))
    ]
    return kept_only(growing, sorted(liked))


def sort_siblings(growing: Growing) -> Draft:
    """Siblings are put in descending order of draft probability."""
    order = sorted(
        range(len(growing.tokens)),
        key=lambda node: (growing.parents[node], -probability(growing, node)),
    )
    return kept_only(growing, order)


def reverse_siblings(growing: Growing) -> Draft:
    """Siblings are put in reverse order of drawing: a change of order that does not look at tokens."""
    nodes = range(len(growing.tokens))
    return kept_only(growing, sorted(nodes, key=lambda node: (growing.parents[node], -node)))


def shuffle_siblings(growing: Growing) -> Draft:
    """Siblings are put in an order drawn at random."""
    left = list(range(len(growing.tokens)))
    order = [left.pop(growing.decisions.draw(np.ones(len(left)))) for _ in growing.tokens]
    return kept_only(growing, sorted(order, key=lambda node: growing.parents[node]))


def keep_best_paths(growing: Growing) -> Draft:
    """Of the whole tree the three most probable nodes are kept."""
    nodes = range(len(growing.tokens))
    best = sorted(nodes, key=lambda node: -path_probability(growing, node))[:3]
    return kept_only(growing, sorted(best))


def cut_improbable_subtrees(growing: Growing) -> Draft:
    """Children are removed if the draft finds all of them improbable."""
    gone = {
        child
        for parent in set(growing.parents) - {-1}
        for child in growing.children(parent)
        if max(probability(growing, other) for other in growing.children(parent)) < 0.4
    }
    return kept_only(growing, [n for n in range(len(growing.tokens)) if n not in gone])


def merge_equal(growing: Growing) -> Draft:
    """Equal siblings are merged, and verified as if they were independent."""
    seen: set[tuple[int, int]] = set()
    keep: list[int] = []
    for node, (token, parent) in enumerate(zip(growing.tokens, growing.parents, strict=True)):
        if (parent, token) not in seen:
            keep.append(node)
        seen.add((parent, token))
    return kept_only(growing, keep)


def claim(replacement: Replacement) -> Alter:
    """The wrong replacement mode is stated."""

    def alter(growing: Growing) -> Draft:
        draft = growing.finish()
        return replace(draft, tree=replace(draft.tree, replacement=replacement))

    return alter


ALTERED: list[tuple[str, Grow, Replacement, Alter]] = [
    (MCSD, static(2), WITH, drop_improbable),
    (MCSD_WO, static(2, 2), WITHOUT, drop_improbable),
    (TRAVERSAL, static(2, 2), WITHOUT, drop_improbable),
    (TRAVERSAL_WITH, static(2, 2), WITH, drop_improbable),
    (SS, static(1, 1), WITH, drop_improbable),
    (BLOCK, static(1, 1), WITH, drop_improbable),
    (MCSD, static(2), WITH, keep_likelier),
    (TRAVERSAL_WITH, static(2), WITH, keep_likelier),
    (SS, static(2), WITH, keep_likelier),
    (BLOCK, static(2), WITH, keep_likelier),
    (SS, static(2), WITH, keep_what_the_target_likes),
    (BLOCK, static(2), WITH, keep_what_the_target_likes),
    (MCSD_WO, static(2), WITHOUT, sort_siblings),
    (TRAVERSAL, static(2), WITHOUT, sort_siblings),
    (MCSD, static(2), WITH, sort_siblings),
    (TRAVERSAL_WITH, static(2), WITH, sort_siblings),
    (MCSD_WO, static(2), WITHOUT, reverse_siblings),
    (TRAVERSAL, static(2), WITHOUT, reverse_siblings),
    (MCSD_WO, static(2), WITHOUT, shuffle_siblings),
    (TRAVERSAL, static(2), WITHOUT, shuffle_siblings),
    (MCSD_WO, static(2, 2), WITHOUT, keep_best_paths),
    (TRAVERSAL, static(2, 2), WITHOUT, keep_best_paths),
    (MCSD_WO, static(2, 2), WITHOUT, cut_improbable_subtrees),
    (MCSD_WO, static(1, 1), WITHOUT, cut_improbable_subtrees),
    (TRAVERSAL, static(1, 1), WITHOUT, cut_improbable_subtrees),
    (MCSD, static(3), WITH, merge_equal),
    (INFER, static(3), WITH, merge_equal),
    (KSEQ, static(3), WITH, merge_equal),
    (CANONICAL, static(3), WITH, merge_equal),
    (TRAVERSAL_WITH, static(3), WITH, merge_equal),
    (MCSD_WO, static(2), WITH, claim(WITHOUT)),
    (MCSD, static(2), WITHOUT, claim(WITH)),
    (TRAVERSAL, static(2), WITH, claim(WITHOUT)),
    (TRAVERSAL_WITH, static(2), WITHOUT, claim(WITH)),
    (INFER, static(2), WITHOUT, claim(WITH)),
    (KSEQ, static(2), WITHOUT, claim(WITH)),
    (CANONICAL, static(2), WITHOUT, claim(WITH)),
]


@pytest.mark.parametrize(("verifier", "grow", "replacement", "alter"), ALTERED)
def test_changed_trees_are_caught(
    verifier: str, grow: Grow, replacement: Replacement, alter: Alter
) -> None:
    """Dropped, chosen, sorted, pruned, merged or misdeclared candidates."""
    assert worst(check_of(verifier), grow, replacement, alter) > VISIBLE


@pytest.mark.parametrize(
    "alter",
    [drop_improbable, keep_likelier, keep_what_the_target_likes, sort_siblings, keep_best_paths],
)
def test_exact_match_takes_changed_trees(alter: Alter) -> None:
    """Without draft probabilities there is nothing to get wrong."""
    assert worst(check_of("exact_match"), static(2, 2), WITHOUT, alter) < 1e-12


@pytest.mark.parametrize("verifier", [MCSD, INFER, KSEQ, CANONICAL, TRAVERSAL_WITH])
@pytest.mark.parametrize("alter", [reverse_siblings, shuffle_siblings])
def test_independent_siblings_may_be_reordered_blindly(verifier: str, alter: Alter) -> None:
    """The order of independent draws says nothing, as long as the change does not look at them."""
    assert worst(check_of(verifier), static(2), WITH, alter) < 1e-12


# Rows that are not the ones sampled from.


def truncated(row_V: Float64s) -> Float64s:
    """The two most probable tokens, not normalised."""
    return np.where(row_V >= np.sort(row_V)[-2], row_V, 0.0)


def tempered(row_V: Float64s) -> Float64s:
    """The row at temperature .7."""
    warm_V: Float64s = row_V ** (1 / 0.7)
    return np.asarray(warm_V / warm_V.sum())


def sampled_truncated(growing: Growing) -> None:
    """A chain drawn from truncated rows."""
    node = -1
    for _ in range(2):
        token = growing.decisions.draw(truncated(growing.row(node)))
        growing.tokens.append(token)
        growing.parents.append(node)
        node = len(growing.tokens) - 1


def most_probable(growing: Growing) -> None:
    """The two most probable tokens, chosen, not drawn."""
    growing.tokens += np.argsort(-growing.row(-1))[:2].tolist()
    growing.parents += [-1, -1]


def sent(change: Callable[[Float64s], Float64s]) -> RowsSent:
    """Rows that the verifier gets instead."""
    return lambda models, draft: [change(row) for row in draft.rows(models)]


def normalised(row_V: Float64s) -> Float64s:
    """Truncated and normalised: the law that was sampled from."""
    kept_V = truncated(row_V)
    return np.asarray(kept_V / kept_V.sum())


@pytest.mark.parametrize("verifier", [SS, MCSD, KSEQ, CANONICAL, BLOCK, TRAVERSAL_WITH])
def test_rows_that_were_not_sampled_from_are_caught(verifier: str) -> None:
    """Full or unnormalised rows for truncated draws, truncated rows for full draws, another temperature; the sampled row itself is fine."""
    check = check_of(verifier)
    assert worst(check, sampled_truncated, WITH, rows_sent=sent(normalised)) < 1e-12
    assert worst(check, sampled_truncated, WITH) > VISIBLE
    assert worst(check, sampled_truncated, WITH, rows_sent=sent(truncated)) > VISIBLE
    assert worst(check, static(1, 1), WITH, rows_sent=sent(normalised)) > VISIBLE
    assert worst(check, static(1, 1), WITH, rows_sent=sent(tempered)) > VISIBLE


@pytest.mark.parametrize("verifier", [MCSD_WO, TRAVERSAL])
def test_chosen_candidates_with_the_rows_of_draws_are_caught(verifier: str) -> None:
    """Deterministic best candidates have the law of one token each, not that of the softmax."""
    check = check_of(verifier)
    assert worst(check, most_probable, WITHOUT, rows_sent=sent(normalised)) > 0.05
    assert worst(check_of("exact_match"), most_probable, WITHOUT) < 1e-12


# Rules that are not the rule.


def only_target(target_V: Float64s, draft_V: Float64s) -> Float64s:
    """The target where the residual belongs."""
    return target_V


@pytest.mark.parametrize(
    ("module", "verifier"), [(speculative_sampling, SS), (mcsd, MCSD), (mcsd, MCSD_WO)]
)
def test_target_for_residual_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, verifier: str
) -> None:
    """Emitting from the target's row after a rejection."""
    monkeypatch.setattr(module, "residual", only_target)
    replacement = WITHOUT if verifier is MCSD_WO else WITH
    assert worst(check_of(verifier), static(1, 1), replacement) > VISIBLE


def scalar_only(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """Only the draft probability of the token is known; the residual is guessed as the target without it."""
    guessed = [
        np.where(np.arange(3) == t, row, 0.0) for t, row in zip(tree.tokens_N, draft, strict=True)
    ]
    token = tree.tokens_N[0]
    if decisions.accept(target[0][token] / guessed[0][token]):
        return Acceptance(path=(0,), tokens=(token, decisions.draw(target[1])))
    return Acceptance(path=(), tokens=(decisions.draw(without(target[0], token)),))


def against_the_target(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """One level; each sibling is tested against the target's own row, as if none had failed before it."""
    for node, token in enumerate(tree.tokens_N):
        if decisions.accept(ratio(target[0][token], draft[tree.sources_N[node]][token])):
            return Acceptance(path=(node,), tokens=(token, decisions.draw(target[node + 1])))
    return Acceptance(path=(), tokens=(decisions.draw(residual(target[0], draft[0])),))


def longer_of_two(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """Two verdicts over the same tree, the longer one kept."""
    check = check_of(MCSD)
    first, second = (check(tree, target, draft, decisions) for _ in range(2))
    return first if len(first.path) >= len(second.path) else second


def longer_of_two_drafters(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """Two chains side by side, each verified by itself; the longer result is kept, the first one on ties."""
    found: list[Acceptance] = []
    for nodes in ((0, 2), (1, 3)):
        chain = DraftTree(
            tokens_N=tuple(tree.tokens_N[node] for node in nodes),
            parents_N=(-1, 0),
            sources_N=tuple(tree.sources_N[node] for node in nodes),
        )
        rows = [target[row] for row in (0, *(node + 1 for node in nodes))]
        found.append(check_of(SS)(chain, np.stack(rows), draft, decisions))
    return max(found, key=lambda outcome: len(outcome.path))


def by_confidence(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """One level; siblings are tested in the order of their own draft probabilities, each with its own row."""
    left_V = target[0]

    def own(node: int) -> float:
        return -float(draft[tree.sources_N[node]][tree.tokens_N[node]])

    for node in sorted(range(tree.num_nodes), key=own):
        token = tree.tokens_N[node]
        if decisions.accept(ratio(left_V[token], -own(node))):
            return Acceptance(path=(node,), tokens=(token, decisions.draw(target[node + 1])))
        left_V = residual(left_V, draft[tree.sources_N[node]])
    return Acceptance(path=(), tokens=(decisions.draw(left_V),))


@pytest.mark.parametrize(
    ("check", "grow"),
    [
        (scalar_only, static(1)),
        (against_the_target, static(2)),
        (longer_of_two, static(2)),
        (longer_of_two_drafters, static(2, 1)),
        (by_confidence, static(2)),
    ],
)
def test_wrong_procedures_are_caught(check: Check, grow: Grow) -> None:
    """A guessed residual; a target that no failure changes; a second try; the better of two drafts; an order that looks at what was drawn."""
    assert worst(check, grow, WITH) > VISIBLE


def unclipped(before: float, target_prob: float, draft_prob: float) -> float:
    """The path ratio without its bound."""
    return before * target_prob / draft_prob


def weight_alone(weight: float, gain: float) -> float:
    """The clipped ratio as if it were the keeping probability of an inner prefix."""
    return weight


def plain_correction(weight: float, target_V: Float64s, draft_V: Float64s) -> Float64s:
    """The token level's residual, with the mass of the right one, so that only what is emitted is wrong."""
    right_V, wrong_V = excess(weight * target_V, draft_V), excess(target_V, draft_V)
    return np.asarray(wrong_V * (right_V.sum() / max(float(wrong_V.sum()), 1e-300)))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("path_weight", unclipped),
        ("keep_probability", weight_alone),
        ("correction", plain_correction),
    ],
)
def test_wrong_block_rules_are_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., object]
) -> None:
    """Missing clip, missing correction of the keeping probability, the token level's residual (a few thousandths)."""
    monkeypatch.setattr(block, name, wrong)
    assert worst(check_of(BLOCK), static(1, 1), WITH) > VISIBLE


def same_weight(
    standing: traversal.Standing, token: int, replacement: Replacement
) -> traversal.Standing:
    """The weight stays what it was after a child has failed."""
    return replace(traversal_update(standing, token, replacement), weight=standing.weight)


def weight_by_draft_mass(
    standing: traversal.Standing, token: int, replacement: Replacement
) -> traversal.Standing:
    """The residual's mass is divided by the draft's mass beyond the failed child."""
    after = traversal_update(standing, token, replacement)
    mass = float(excess(standing.weight * standing.target_V, standing.draft_V).sum())
    return replace(after, weight=min(1.0, mass / max(1.0 - standing.draft_V[token], 1e-12)))


traversal_update = traversal.after_failure


@pytest.mark.parametrize("wrong", [same_weight, weight_by_draft_mass])
@pytest.mark.parametrize("replacement", [WITH, WITHOUT])
def test_wrong_traversal_updates_are_caught(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., object], replacement: Replacement
) -> None:
    """Only mass / (mass + 1 - weight) is right."""
    monkeypatch.setattr(traversal, "after_failure", wrong)
    verifier = TRAVERSAL if replacement is WITHOUT else TRAVERSAL_WITH
    assert worst(check_of(verifier), static(1, 2), replacement) > VISIBLE


# Mistakes that trees of depth two cannot show.


class FromThirdToken:
    """A rule of block verification that is wrong from the third token of a chain of three on."""

    def __init__(self, name: str, wrong: Callable[..., object]) -> None:
        """Take the place of a function of the module."""
        self._right, self._wrong = getattr(block, name), wrong
        self._is_downward = name == "path_weight"
        self.calls = 0

    def __call__(self, *arguments: object) -> object:
        """Weights are computed from the first token down, the other rules are asked from the last one up."""
        place = self.calls if self._is_downward else 2 - self.calls
        self.calls += 1
        rule = self._wrong if place >= 2 else self._right
        return rule(*arguments)


def last_ratio(before: float, target_prob: float, draft_prob: float) -> float:
    """The ratio of the token alone, not that of its path."""
    return ratio(target_prob, draft_prob)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("path_weight", last_ratio),
        ("keep_probability", weight_alone),
        ("correction", plain_correction),
    ],
)
def test_block_rules_that_are_wrong_from_the_third_token_on_are_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., object]
) -> None:
    """On chains of three; chains of two do not come that far."""
    rule = FromThirdToken(name, wrong)
    monkeypatch.setattr(block, name, rule)

    def check(
        tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
    ) -> Acceptance:
        rule.calls = 0
        return check_of(BLOCK)(tree, target, draft, decisions)

    # Of two tokens a residual has one: three are needed to see a wrong one.
    def models_of(seed: int) -> Models:
        return random_models(seed, depth=4)

    assert worst(check, static(1, 1, 1), WITH, models_of=models_of) > VISIBLE


def forgetful(from_depth: int) -> Check:
    """Traversal whose internal nodes at a depth, and below, forget what the failure of their children means for them."""

    def check(
        tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
    ) -> Acceptance:
        children = tree.children()

        def visit(node: int, weight: float, depth: int) -> tuple[list[int], int] | None:
            target_V, siblings = target[node + 1], children.get(node, [])
            if siblings:
                row_V = draft[tree.sources_N[siblings[0]]]
                standing = traversal.Standing(weight, target_V, row_V)
                for child in siblings:
                    token = tree.tokens_N[child]
                    path_weight = block.path_weight(
                        standing.weight,
                        float(standing.target_V[token]),
                        float(standing.draft_V[token]),
                    )
                    found = visit(child, path_weight, depth + 1)
                    if found is not None:
                        found[0].append(node)
                        return found
                    standing = traversal.after_failure(standing, token, tree.replacement)
                if depth < from_depth:
                    weight, target_V = standing.weight, standing.target_V
            if node == -1 or decisions.accept(weight):
                return [node], decisions.draw(target_V)
            return None

        found = visit(-1, 1.0, 0)
        assert found is not None
        path = tuple(found[0][-2::-1])
        return Acceptance(path=path, tokens=(*(tree.tokens_N[node] for node in path), found[1]))

    return check


@pytest.mark.parametrize("replacement", [WITH, WITHOUT])
@pytest.mark.parametrize("grow", [static(1, 1, 1), static(2, 1, 1), static(1, 2, 2)])
def test_updates_forgotten_at_the_second_level_are_caught(
    grow: Grow, replacement: Replacement
) -> None:
    """Total variations of hundredths; without a forgotten update the same code is exact."""
    assert worst(forgetful(2), grow, replacement, models_of=deep_models) > 10 * VISIBLE
    assert worst(forgetful(3), grow, replacement, models_of=deep_models) < 1e-12


class ReusedUniform(Branches):
    """Takes the first chance with a given uniform, all other decisions in every way."""

    def __init__(self, uniform: float) -> None:
        """Start with the uniform that has drawn the candidate."""
        super().__init__([])
        self._first: UniformDecisions | None = UniformDecisions([uniform])

    def accept(self, probability: float) -> bool:
        """The given uniform, once."""
        first, self._first = self._first, None
        return super().accept(probability) if first is None else first.accept(probability)


@pytest.mark.parametrize("is_reused", [True, False])
def test_uniforms_of_the_drafter_in_the_test_are_caught(is_reused: bool) -> None:
    """The uniform that drew the candidate tests it: .10 off on the running example; a fresh one is exact."""
    target_V, draft_V = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    law_V = np.zeros(4)
    steps = (np.arange(400) + 0.5) / 400  # every threshold of the example is a multiple of 1/40
    for uniform in steps:
        token = UniformDecisions([uniform]).draw(draft_V)
        tree = DraftTree(tokens_N=(token,), parents_N=(-1,), sources_N=(0,))
        for test in [uniform] if is_reused else steps[5::10]:
            ways = ReusedUniform(float(test))
            outcome = speculative_sampling.speculative_sampling(
                tree=tree,
                target_probs_NV=np.stack([target_V, target_V]),
                draft_probs_RV=[draft_V],
                decisions=ways,
            )
            weight = 1.0 / 400 / (1 if is_reused else 40)
            if outcome.path:
                law_V[token] += weight
            else:
                law_V += weight * excess(target_V, draft_V) / 0.4
    off = 0.5 * float(np.abs(law_V - target_V).sum())
    assert off > 0.05 if is_reused else off < 0.005
