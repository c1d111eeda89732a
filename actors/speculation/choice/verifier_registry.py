"""Every verifier, by name. The target, the drafters and the checks of requests ask here; nobody else lists them."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.actors.speculation import verifiers
from outrider.actors.speculation.plugins import Discovered, discover
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec

GROUP = "outrider.verifiers"
"""Entry points under which other packages offer verifiers."""

VERIFIERS: Mapping[str, VerifierSpec] = Discovered(
    lambda: discover(verifiers, VerifierSpec, group=GROUP)
)
"""Every verifier that an option can name. Looked for when first asked: drafters import this, also those of other packages."""


def check_tree(verifier: str, tree: DraftTree) -> None:
    """Refuse a tree that a verifier cannot take. What a tree cannot show (how it was grown) is the drafter's promise.

    Raises:
        ValueError: The tree does not fit; the message says why.
    """
    method = VERIFIERS[verifier]
    if method.is_chain_only and not tree.is_chain:
        raise ValueError(
            f"{verifier} verifies chains; the tree branches. Use k-configuration 1,1,..."
        )
    if not method.needs_frozen_tree:
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
