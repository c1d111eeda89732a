"""The canonical decomposition of multi-draft sampling: choose one sibling by importance, then test only that one.

Source: Khisti, Ebrahimi, Dbouk, Behboodi, Memisevic, Louizos 2024, arXiv 2410.18234: importance-weighted sampling with
the truncated linear program (`pair_selection.py`; outside the program's block the rule is our own), then speculative
sampling of the winner against the winner's law. More than two siblings play a tournament (`tournament.py`).

Guarantee: the output has the law of the target if siblings are independent draws, each from the row it names, and their
number does not depend on their tokens. Siblings may come from different drafters. With two siblings and a block that
holds the whole vocabulary the acceptance is the best possible; with more siblings it is never less than with fewer.

Edge cases: one sibling is speculative sampling; a residual draw that some sibling holds goes on below it, because the
subtrees had no part in it; a residual without mass can be reached by rounding only and falls back to the target's row.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, required
from outrider.actors.speculation.verify.descend import Choice, descend, first_holding
from outrider.actors.speculation.verify.pair_selection import DEFAULT_BLOCK
from outrider.actors.speculation.verify.residual import ratio, residual
from outrider.actors.speculation.verify.tournament import Tournament
from outrider.actors.speculation.verify.verifier_spec import WITH, TreeGrowth, VerifierSpec


def canonical(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
    block: int = DEFAULT_BLOCK,
) -> Acceptance:
    """Verify a tree from the top.

    Args:
        tree: As all others: `acceptance.Verify`.
        target_probs_NV: The same.
        draft_probs_RV: The same.
        decisions: The same.
        block: Tokens among which the linear program chooses, at least 1; more costs time and accepts more.
    """
    rows_RV = required(draft_probs_RV, tree)

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        winner = siblings[0]
        law_V = rows_RV[tree.sources_N[winner]]
        if len(siblings) > 1:
            sources = dict.fromkeys(tree.sources_N[node] for node in siblings)
            rows = {source: rows_RV[source] for source in sources}
            tournament = Tournament(target_V, rows, block)
            for node in siblings[1:]:
                selection = tournament.enter(tree.sources_N[node])
                first, second = tree.tokens_N[winner], tree.tokens_N[node]
                if first != second and not decisions.accept(
                    tournament.first_wins(selection, first, second)
                ):
                    winner = node
            law_V = tournament.law_V
        token = tree.tokens_N[winner]
        if decisions.accept(ratio(target_V[token], law_V[token])):
            return Choice(winner, token)
        return first_holding(tree, siblings, decisions.draw(residual(target_V, law_V)))

    return descend(tree=tree, target_probs_NV=target_probs_NV, decisions=decisions, choose=choose)


SPECS = (
    VerifierSpec(
        name="canonical",
        verify=canonical,
        summary="independent siblings of one or several drafters, one chosen by importance",
        source="Khisti et al. 2024, arXiv 2410.18234",
        growth=TreeGrowth.PREFIX,
        replacements=WITH,
        mixes_drafters=True,
    ),
)
