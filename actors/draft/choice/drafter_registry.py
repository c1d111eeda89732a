"""Every drafting method, by name. The actor, the configuration and the documentation ask here; nobody else lists them."""

from __future__ import annotations

import json
from pathlib import Path

from outrider.actors.draft import methods
from outrider.actors.draft.state.drafter_spec import DrafterSpec
from outrider.actors.engine.checkpoint.model_source import resolve_model
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


def loading_method(model: str) -> str | None:
    """The method that alone loads a model, by what its folder says of itself; None: it is a language model, or nothing is known of it here."""
    try:
        source = resolve_model(model)
        if source.is_tabular or not source.is_local:
            return None
        content = json.loads((Path(source.location) / "config.json").read_text(encoding="utf-8"))
        kind = content.get("model_type")
    except (OSError, ValueError, AttributeError):
        return None
    return next((name for name, spec in DRAFTERS.items() if kind in spec.model_types), None)
