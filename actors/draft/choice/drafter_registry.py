"""Every drafting method, by name. The actor, the configuration and the documentation ask here; nobody else lists them."""

from __future__ import annotations

from outrider.actors.draft import methods
from outrider.actors.draft.state.drafter_spec import DrafterSpec
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.plugins import discover

GROUP = "outrider.drafters"
"""Entry points under which other packages offer drafting methods."""

DRAFTERS = discover(methods, DrafterSpec, group=GROUP)
"""Every method that a configuration can name."""


def served_verifiers(method: DrafterSpec) -> tuple[str, ...]:
    """The verifiers that a drafter of a method can serve: those that need tokens only, and the others if it gives probabilities."""
    return tuple(
        name
        for name, verifier in VERIFIERS.items()
        if method.gives_probabilities or not verifier.needs_frozen_tree
    )
