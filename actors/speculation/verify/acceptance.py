"""What a verifier returns, and the signature that all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.actors.speculation.sampling.random_acts import Decisions, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The outcome of one round."""

    path: tuple[int, ...]
    """Accepted nodes, from the root down; may be empty."""

    tokens: tuple[int, ...]
    """What the round commits: the tokens of `path`, then one drawn by the target. May be cut anywhere, at a stop token
    or a length limit, without changing the law of what stays."""

    @property
    def token(self) -> int:
        """The last token: the bonus after a leaf, or the recovered one where every candidate failed."""
        return self.tokens[-1]


class Verify(Protocol):
    """The signature of all verifiers."""

    def __call__(
        self,
        *,
        tree: DraftTree,
        target_probs_NV: ProbabilityRows,
        draft_probs_RV: ProbabilityRows | None,
        decisions: Decisions,
    ) -> Acceptance:
        """Decide which candidates stay.

        Args:
            tree: The candidates, frozen before `decisions` were made.
            target_probs_NV: Rows of float64 (V,) that sum to 1, after all sampling options: row 0 follows the committed
                text, row 1 + n follows node n. N = number of nodes + 1. Only rows that are looked at are read.
            draft_probs_RV: Row r is the law that every node with source r was *really* drawn from. None for methods
                that need no draft probabilities, which ignore it.
            decisions: Answers to random questions, never used before.
        """


def accepted(tree: DraftTree, path: Sequence[int], token: int) -> Acceptance:
    """The outcome in which `path` stays and `token` follows."""
    return Acceptance(path=tuple(path), tokens=(*(tree.tokens_N[node] for node in path), token))


def check_acceptance(
    verifier: str, acceptance: Acceptance, tree: DraftTree, vocab_size: int
) -> None:
    """Refuse an outcome that no verifier of this tree may have: it may be code of others.

    Raises:
        ValueError: The path is no way down the tree, or the tokens are not those of the path and one more; the message says which.
    """
    path, tokens = acceptance.path, acceptance.tokens
    above = -1
    for node in path:
        if not 0 <= node < tree.num_nodes or tree.parents_N[node] != above:
            raise ValueError(
                f"{verifier} accepts the nodes {path}, no way down its tree of {tree.num_nodes}"
            )
        above = node
    if tokens[:-1] != tuple(tree.tokens_N[node] for node in path) or not tokens:
        raise ValueError(
            f"{verifier} says the tokens {tokens}, not those of the nodes {path} and one more"
        )
    if not 0 <= tokens[-1] < vocab_size:
        raise ValueError(f"{verifier} draws the token {tokens[-1]}; there are {vocab_size}")


def required(draft_probs_RV: ProbabilityRows | None, tree: DraftTree) -> ProbabilityRows:
    """The draft rows of a method that cannot do without.

    Raises:
        ValueError: There are none, or the tree does not say which node was drawn from which.
    """
    if draft_probs_RV is None or len(tree.sources_N) != tree.num_nodes:
        raise ValueError(
            f"this method needs the draft probabilities of all {tree.num_nodes} nodes, and there are none; "
            "let the drafter send them, or choose exact_match or coupled"
        )
    return draft_probs_RV
