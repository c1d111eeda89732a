"""The way down a tree that most verifiers share: choose among the children of a node, go there, choose again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, accepted


@dataclass(frozen=True, slots=True)
class Choice:
    """The token after a node, and the child that holds it."""

    child: int | None
    """The child, or None if no child was accepted: the round ends with `token`."""

    token: int
    """Token id."""


Choose = Callable[[Float64s, Sequence[int]], Choice]
"""From the target's row at a node and its children in draw order, at least one, to the choice."""


def descend(
    *, tree: DraftTree, target_probs_NV: ProbabilityRows, decisions: Decisions, choose: Choose
) -> Acceptance:
    """Follow `choose` from the root until no child is chosen; at a leaf, draw from the target's own row.

    If at each node the chosen token has the law of the target's row there, whatever the subtrees below hold, the
    committed tokens have the law of the target.
    """
    children = tree.children()
    path: list[int] = []
    node = -1
    while True:
        target_V = target_probs_NV[node + 1]
        siblings = children.get(node)
        if siblings is None:
            return accepted(tree, path, decisions.draw(target_V))
        choice = choose(target_V, siblings)
        if choice.child is None:
            return accepted(tree, path, choice.token)
        path.append(choice.child)
        node = choice.child


def first_holding(tree: DraftTree, siblings: Sequence[int], token: int) -> Choice:
    """Go on below the first sibling that holds a token drawn without regard to the siblings' subtrees, if any does."""
    for node in siblings:
        if tree.tokens_N[node] == token:
            return Choice(node, token)
    return Choice(None, token)


def shared_row(
    tree: DraftTree, siblings: Sequence[int], draft_probs_RV: ProbabilityRows
) -> Float64s:
    """The one row that all siblings were drawn from.

    Raises:
        ValueError: They were drawn from several.
    """
    sources = {tree.sources_N[node] for node in siblings}
    if len(sources) != 1:
        raise ValueError(
            f"siblings {tuple(siblings)} were drawn from rows {sorted(sources)}; this method needs siblings of one "
            "drafter: choose specinfer or canonical for several"
        )
    return draft_probs_RV[sources.pop()]
