"""Coupled verification in the common signature gives plain decoding's tokens, whatever the tree knows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import prefixes, random_models

from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verifiers.coupled import CoupledDecisions, coupled


@pytest.mark.parametrize("seed", range(40))
def test_tokens_are_those_of_plain_decoding(seed: int) -> None:
    """The tree holds the true draws, then something else: what comes out is the same."""
    rng = np.random.default_rng(seed)
    models = random_models(seed)
    noise = rng.gumbel(size=(3, 3))
    plain: tuple[int, ...] = ()
    while len(plain) < 3:
        plain = (*plain, int((np.log(models.target[plain]) + noise[len(plain)]).argmax()))
    tokens = (int(rng.integers(3)), plain[0], plain[1], int(rng.integers(3)))
    parents = (-1, -1, 1, 0)
    tree = DraftTree(tokens_N=tokens, parents_N=parents)
    rows = np.stack([models.target[prefix] for prefix in prefixes(tokens, parents)])
    outcome = coupled(tree=tree, target_probs_NV=rows, decisions=CoupledDecisions(noise))
    assert outcome.tokens == plain[: len(outcome.tokens)]
    assert len(outcome.path) == 2 or tokens[0] == plain[0]


def test_what_the_target_excludes_is_not_drawn() -> None:
    """Whatever the noise; and that is no error."""
    decisions = CoupledDecisions(np.array([[9.0, 0.0, 1.0], [0.0, 9.0, 1.0]]))
    drawn = [decisions.draw(np.array(row)) for row in ([0.0, 0.5, 0.5], [0.5, 0.0, 0.5])]

    assert drawn == [2, 2]


def test_without_noise_the_draw_is_the_likeliest_token() -> None:
    """Of equal ones the least id."""
    tree = DraftTree(tokens_N=(2, 1), parents_N=(-1, -1))
    rows = np.array([[0.1, 0.45, 0.45], [0.5, 0.5, 0.0], [0.0, 0.2, 0.8]])
    outcome = coupled(tree=tree, target_probs_NV=rows, decisions=CoupledDecisions(None))

    assert (outcome.path, outcome.tokens) == ((1,), (1, 2))


def test_chances_are_refused() -> None:
    """The coupled rule has no use for them; another verifier given this source would not be exact."""
    with pytest.raises(TypeError, match="only draws"):
        CoupledDecisions(None).accept(0.5)
