"""What a verifier may say of a tree, and what is refused."""

from __future__ import annotations

import pytest

from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, check_acceptance


@pytest.mark.parametrize(
    ("path", "tokens", "says"),
    [
        ((7,), (3, 4), r"odd accepts the nodes \(7,\), no way down its tree of 4"),
        ((4,), (3, 4), r"odd accepts the nodes \(4,\), no way"),
        ((-1,), (3, 4), r"odd accepts the nodes \(-1,\), no way"),
        ((2,), (5, 4), r"odd accepts the nodes \(2,\), no way"),
        ((0, 1), (3, 4, 1), r"odd accepts the nodes \(0, 1\), no way"),
        ((0, 3), (3, 6, 1), r"odd accepts the nodes \(0, 3\), no way"),
        ((0, 0), (3, 3, 1), r"odd accepts the nodes \(0, 0\), no way"),
        ((), (), r"odd says the tokens \(\), not those of the nodes \(\) and one more"),
        ((0,), (3,), r"odd says the tokens \(3,\), not"),
        ((0,), (4, 1), r"odd says the tokens \(4, 1\), not"),
        ((0,), (3, 4, 1), r"odd says the tokens \(3, 4, 1\), not"),
        ((), (8,), "odd draws the token 8; there are 8"),
        ((0,), (3, -1), "odd draws the token -1; there are 8"),
    ],
)
def test_an_outcome_that_is_none_is_refused(
    path: tuple[int, ...], tokens: tuple[int, ...], says: str
) -> None:
    """A verifier of another package may be wrong, and what it says is looked up and committed."""
    tree = DraftTree(tokens_N=(3, 4, 5, 6), parents_N=(-1, -1, 0, 1))
    with pytest.raises(ValueError, match=says):
        check_acceptance("odd", Acceptance(path=path, tokens=tokens), tree, 8)


@pytest.mark.parametrize(
    ("path", "tokens"),
    [((), (0,)), ((), (7,)), ((0,), (3, 7)), ((1, 3), (4, 6, 0)), ((0, 2), (3, 5, 5))],
)
def test_outcomes_of_the_tree_pass(path: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """From the root down, and a token that the target has."""
    tree = DraftTree(tokens_N=(3, 4, 5, 6), parents_N=(-1, -1, 0, 1))
    check_acceptance("fine", Acceptance(path=path, tokens=tokens), tree, 8)
