"""Every option has its verifier, and trees that do not fit are refused with a reason."""

from __future__ import annotations

import pkgutil
from dataclasses import replace

import pytest

from outrider.actors.speculation import verifiers
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS, check_tree
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT


def tree(parents: tuple[int, ...], replacement: Replacement, sources: tuple[int, ...]) -> DraftTree:
    """A tree of different tokens."""
    return DraftTree(
        tokens_N=tuple(range(len(parents))),
        parents_N=parents,
        sources_N=sources,
        replacement=replacement,
    )


def test_every_file_of_the_folder_is_there() -> None:
    """A file in the folder is all that a verifier needs."""
    files = {module.name for module in pkgutil.iter_modules(verifiers.__path__)}

    assert files == {spec.verify.__module__.rpartition(".")[2] for spec in VERIFIERS.values()}
    assert [name for name, spec in VERIFIERS.items() if not spec.is_lossless] == ["typical"]


@pytest.mark.parametrize("name", ["Block", "two words", "with-dash", "3d", ""])
def test_a_name_is_a_lower_case_word(name: str) -> None:
    """As flags, configuration and messages spell it."""
    with pytest.raises(ValueError, match=f"verifier {name!r}: a name is lower case"):
        replace(VERIFIERS["typical"], name=name)
    assert replace(VERIFIERS["typical"], name="my_own").name == "my_own"


def test_options_are_settled() -> None:
    """Those given, both ends of an interval included, and the others' defaults."""
    typical = VERIFIERS["typical"]
    assert typical.settled({}) == {"epsilon": 0.09, "delta": 0.3}
    assert typical.settled({"delta": 1.0}) == {"epsilon": 0.09, "delta": 1.0}
    assert typical.settled({"delta": 0.0, "epsilon": 0.5}) == {"epsilon": 0.5, "delta": 0.0}
    for value in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"delta of typical must be in \[0, 1\]"):
            typical.settled({"delta": value})


def test_unknown_options_are_refused() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match=r"typical has no option 'x'; it has epsilon, delta$"):
        VERIFIERS["typical"].settled({"x": 1.0})
    with pytest.raises(ValueError, match=r"block has no option 'delta'; it has none$"):
        VERIFIERS["block"].settled({"delta": 1.0})


@pytest.mark.parametrize(
    ("verifier", "parents", "replacement", "sources", "message"),
    [
        ("block", (-1, -1), WITH, (0, 0), "block verifies chains"),
        (
            "speculative_sampling",
            (-1, -1),
            WITH,
            (0, 0),
            "speculative_sampling verifies",
        ),
        (
            "kseq",
            (-1, -1),
            WITHOUT,
            (0, 0),
            "kseq needs siblings drawn with replacement",
        ),
        ("specinfer", (-1, -1), WITHOUT, (0, 0), "drawn with replacement"),
        ("canonical", (-1, -1), WITHOUT, (0, 0), "drawn with replacement"),
        ("mcsd_with_replacement", (-1, -1), WITHOUT, (0, 0), "drawn with replacement"),
        (
            "mcsd_without_replacement",
            (-1, -1),
            WITH,
            (0, 0),
            "drawn without replacement",
        ),
        ("traversal", (-1, -1), WITHOUT, (0, 1), "siblings of one drafter"),
        ("traversal", (-1, -1), WITH, (0, 0), "drawn without replacement"),
        (
            "traversal_with_replacement",
            (-1, -1),
            WITHOUT,
            (0, 0),
            "drawn with replacement",
        ),
        ("kseq", (-1, -1), WITH, (0, 1), "siblings of one drafter"),
        ("traversal", (-1, 0), WITH, (), "needs the draft row"),
    ],
)
def test_unfit_trees_are_refused(
    verifier: str,
    parents: tuple[int, ...],
    replacement: Replacement,
    sources: tuple[int, ...],
    message: str,
) -> None:
    """The message names the method and what it needs."""
    with pytest.raises(ValueError, match=message):
        check_tree(verifier, tree(parents, replacement, sources))


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("replacement", [WITH, WITHOUT])
def test_chains_fit_every_method(verifier: str, replacement: Replacement) -> None:
    """Without siblings the replacement mode says nothing."""
    check_tree(verifier, tree((-1, 0, 1), replacement, sources_by_parent((-1, 0, 1))))


@pytest.mark.parametrize("verifier", ["coupled", "exact_match"])
def test_token_only_methods_take_any_tree(verifier: str) -> None:
    """No rows, no mode, no order."""
    check_tree(verifier, tree((-1, -1, 0, 0), WITHOUT, ()))


def test_siblings_are_drawn_without_replacement_where_that_is_allowed() -> None:
    """And else with."""
    drawn = {one: spec.drawn for one, spec in VERIFIERS.items() if len(spec.replacements) == 1}
    assert {*drawn.values()} == {WITH, WITHOUT}
    assert all(how in VERIFIERS[one].replacements for one, how in drawn.items())
    assert VERIFIERS["exact_match"].drawn is WITHOUT


def test_every_group_of_siblings_is_looked_at() -> None:
    """A lone child before them hides none, and several of one drafter are what is wanted."""
    check_tree("traversal", tree((-1, 0, 0), WITHOUT, (0, 1, 1)))
    with pytest.raises(ValueError, match="siblings of one drafter"):
        check_tree("traversal", tree((-1, 0, 0), WITHOUT, (0, 0, 1)))
