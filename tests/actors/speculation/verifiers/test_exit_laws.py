"""A draft model with exits, to verifiers that divide by its law: what the choice of the exit may read, and what it may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.actors.speculation.trees.branches import (
    Draft,
    Growing,
    Models,
    Prefix,
    committed,
    distance,
    drafts,
    joint_law,
    random_models,
)
from tests.actors.speculation.trees.told_draft import ToldDraft
from tests.actors.speculation.verifiers.checks import EXACT, VISIBLE, check_of, error
from tests.actors.speculation.verifiers.test_exactness import STATIC

from outrider.actors.frozen.sparse_rows import SparseRow, Urn
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.trees.draft_tree import Replacement

THRESHOLD = 0.6
SEEDS = range(2)

DIVIDING = [
    name
    for name, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless and not method.shares_noise
]

Rows = Mapping[Prefix, SparseRow]


def two_exits(seed: int) -> tuple[Models, Rows, Rows]:
    """A target, and the rows of an early and of a deep exit."""
    models = random_models(seed)
    return models, models.draft, random_models(seed + 100).draft


def is_sure(models: Models, row: SparseRow) -> bool:
    """The likeliest token of a row has more than the threshold."""
    return bool(row.dense(models.vocab).max() > THRESHOLD)


@pytest.mark.parametrize("verifier", DIVIDING)
def test_an_exit_chosen_by_its_own_law_is_one_more_draft_model(verifier: str) -> None:
    """The engine's rule: a row of each prefix, whatever is drawn. Exact for every shape that the verifier takes."""
    method = VERIFIERS[verifier]
    for seed in SEEDS:
        models, early, deep = two_exits(seed)
        rows = {one: row if is_sure(models, row) else deep[one] for one, row in early.items()}
        nested = replace(models, draft=rows)
        for replacement in sorted(method.replacements):
            for shape in ("chain",) if method.is_chain_only else ("chain", "paths"):
                assert error(verifier, STATIC[shape], replacement, nested) < EXACT


def grown(
    choose: Callable[[Growing, dict[int, SparseRow]], None], models: Models
) -> list[tuple[Draft, float]]:
    """Every tree of a drafter that chooses a row for each node that it draws children of."""
    used: dict[int, SparseRow] = {}

    def grow(growing: Growing) -> None:
        used.clear()
        choose(growing, used)

    def finish(growing: Growing) -> Draft:
        plain = Growing.finish(growing)
        rows = tuple(used[node].dense(models.vocab) for node in sorted(used))
        return ToldDraft(plain.tree, plain.contexts, rows)

    return drafts(models, grow, Replacement.WITH, finish)


def by_the_drawn_token(
    models: Models, early: Rows, deep: Rows
) -> Callable[[Growing, dict[int, SparseRow]], None]:
    """A token is drawn at the early exit, and again at the deep one if the early one found it unlikely: what a released code does."""

    def choose(growing: Growing, used: dict[int, SparseRow]) -> None:
        node = -1
        for _ in range(2):
            context = growing.context(node)
            row = early[context]
            token = Urn(row).draw(growing.decisions)
            assert token is not None
            if row.dense(models.vocab)[token] <= THRESHOLD:
                row = deep[context]
                token = Urn(row).draw(growing.decisions)
                assert token is not None
            used[node] = row
            growing.tokens.append(token)
            growing.parents.append(node)
            node = len(growing.tokens) - 1

    return choose


@pytest.mark.parametrize(
    "verifier",
    [
        name
        for name in DIVIDING
        if Replacement.WITH in VERIFIERS[name].replacements or VERIFIERS[name].is_chain_only
    ],
)
def test_an_exit_chosen_by_the_drawn_token_changes_the_output(verifier: str) -> None:
    """Though each row that is sent is the one that its token was drawn from."""
    found = 0.0
    for seed in SEEDS:
        models, early, deep = two_exits(seed)
        law = grown(by_the_drawn_token(models, early, deep), models)
        outcomes = committed(models, law, check_of(verifier))
        found = max(found, distance(joint_law(models, outcomes), models.truth))
    assert found > VISIBLE
