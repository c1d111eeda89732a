"""The verifiers by name, and what each needs of a tree; the target and the drafters ask here, nobody else lists them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from outrider.actors.speculation.options import VerifierName
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verify.acceptance import Verify
from outrider.actors.speculation.verify.block import block
from outrider.actors.speculation.verify.canonical import canonical
from outrider.actors.speculation.verify.coupled import coupled
from outrider.actors.speculation.verify.exact_match import exact_match
from outrider.actors.speculation.verify.kseq import kseq
from outrider.actors.speculation.verify.mcsd import mcsd
from outrider.actors.speculation.verify.specinfer import specinfer
from outrider.actors.speculation.verify.speculative_sampling import speculative_sampling
from outrider.actors.speculation.verify.traversal import traversal


class TreeGrowth(StrEnum):
    """What the shape of a tree may depend on."""

    ANYTHING = "anything"
    """Candidates may be chosen, pruned, merged and reordered at will, also after they were drawn."""

    DRAWN_TOKENS = "drawn_tokens"
    """Whether to draw a further token may depend on all tokens in the tree; each token that was drawn stays."""

    PREFIX = "prefix"
    """The number of siblings may depend on the text before them only, not on their tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A verifier and its needs."""

    verify: Verify
    """The function."""

    growth: TreeGrowth
    """What the shape of the tree may depend on."""

    needs_draft_probs: bool
    """True: the frozen row of every internal node must be sent along, and tokens drawn from exactly those numbers."""

    needs_all_target_rows: bool
    """True: target rows of all nodes are read; False: only those along the accepted path."""

    is_chain_only: bool
    """True: the tree must be a chain."""

    replacements: frozenset[Replacement]
    """How siblings may be drawn. Irrelevant where no node has siblings."""

    mixes_drafters: bool
    """True: siblings may come from different drafters."""

    shares_noise: bool
    """True: the target's draws come from the noise that drafters know; all others need decisions nobody else knows."""


_ANY = frozenset(Replacement)
_WITH = frozenset({Replacement.WITH})
_WITHOUT = frozenset({Replacement.WITHOUT})


def _method(
    verify: Verify,
    *,
    growth: TreeGrowth = TreeGrowth.DRAWN_TOKENS,
    needs_draft_probs: bool = True,
    needs_all_target_rows: bool = False,
    is_chain_only: bool = False,
    replacements: frozenset[Replacement] = _ANY,
    mixes_drafters: bool = False,
    shares_noise: bool = False,
) -> Method:
    return Method(
        verify=verify,
        growth=growth,
        needs_draft_probs=needs_draft_probs,
        needs_all_target_rows=needs_all_target_rows,
        is_chain_only=is_chain_only,
        replacements=replacements,
        mixes_drafters=mixes_drafters,
        shares_noise=shares_noise,
    )


METHODS = MappingProxyType(
    {
        VerifierName.COUPLED: _method(
            coupled,
            growth=TreeGrowth.ANYTHING,
            needs_draft_probs=False,
            mixes_drafters=True,
            shares_noise=True,
        ),
        VerifierName.EXACT_MATCH: _method(
            exact_match, growth=TreeGrowth.ANYTHING, needs_draft_probs=False, mixes_drafters=True
        ),
        VerifierName.SPECULATIVE_SAMPLING: _method(speculative_sampling, is_chain_only=True),
        VerifierName.MCSD_WITH_REPLACEMENT: _method(mcsd, replacements=_WITH),
        VerifierName.MCSD_WITHOUT_REPLACEMENT: _method(mcsd, replacements=_WITHOUT),
        VerifierName.SPECINFER: _method(
            specinfer, growth=TreeGrowth.PREFIX, replacements=_WITH, mixes_drafters=True
        ),
        VerifierName.KSEQ: _method(kseq, growth=TreeGrowth.PREFIX, replacements=_WITH),
        VerifierName.CANONICAL: _method(
            canonical, growth=TreeGrowth.PREFIX, replacements=_WITH, mixes_drafters=True
        ),
        VerifierName.BLOCK: _method(block, needs_all_target_rows=True, is_chain_only=True),
        VerifierName.TRAVERSAL: _method(
            traversal, needs_all_target_rows=True, replacements=_WITHOUT
        ),
        VerifierName.TRAVERSAL_WITH_REPLACEMENT: _method(
            traversal, needs_all_target_rows=True, replacements=_WITH
        ),
    }
)
"""Every verifier that an option can name."""


def check_tree(verifier: VerifierName, tree: DraftTree) -> None:
    """Refuse a tree that a verifier cannot take. What a tree cannot show (how it was grown) is the drafter's promise.

    Raises:
        ValueError: The tree does not fit; the message says why.
    """
    method = METHODS[verifier]
    if method.is_chain_only and not tree.is_chain:
        raise ValueError(
            f"{verifier} verifies chains; the tree branches. Use k-configuration 1,1,..."
        )
    if not method.needs_draft_probs:
        return
    if len(tree.sources_N) != tree.num_nodes:
        raise ValueError(
            f"{verifier} needs the draft row of each of the {tree.num_nodes} nodes, and there are none"
        )
    for siblings in tree.children().values():
        if len(siblings) == 1:
            continue
        if tree.replacement not in method.replacements:
            raise ValueError(
                f"{verifier} needs siblings drawn {' or '.join(sorted(method.replacements))} replacement; "
                f"these were drawn {tree.replacement} replacement"
            )
        sources = {tree.sources_N[node] for node in siblings}
        if len(sources) > 1 and not method.mixes_drafters:
            raise ValueError(
                f"{verifier} needs siblings of one drafter; nodes {siblings} come from rows {sorted(sources)}"
            )
