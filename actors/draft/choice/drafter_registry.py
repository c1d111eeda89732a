"""Every drafting method, by name. The actor, the configuration and the documentation ask here; nobody else lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.actors.draft import methods
from outrider.actors.draft.checkpoints.net_place import folder_of_config
from outrider.actors.draft.on_states.known_formats import (
    check_fits,
    checkpoint_of,
    config_of,
    target_shape,
)
from outrider.actors.draft.state.drafter_spec import DrafterSpec, TargetNeed
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.plugins import discover

GROUP = "outrider.drafters"
"""Entry points under which other packages offer drafting methods."""

DRAFTERS = discover(methods, DrafterSpec, group=GROUP)
"""Every method that a configuration can name."""


OWN_FIELDS = {"width", "vocab_size", "tables_digest"}
"""What the `config.json` of a net has that was made here for a target."""


def served_verifiers(method: DrafterSpec) -> tuple[str, ...]:
    """The verifiers that a drafter of a method can serve: those that need tokens only, and the others if it gives probabilities."""
    return tuple(
        name
        for name, verifier in VERIFIERS.items()
        if method.gives_probabilities or not verifier.needs_frozen_tree
    )


def loading_method(model: str) -> str | None:
    """The method that a model is made for, by what its folder says of itself; None: it is a language model, or nothing is known of it here."""
    try:
        found = checkpoint_of(model)
        content = {"model_type": found.format.model_type} if found is not None else own(model)
    except (OSError, ValueError):
        return None
    kind = content.get("model_type")
    return next(
        (
            name
            for name, spec in DRAFTERS.items()
            if kind in spec.model_types or spec.config_key in content
        ),
        None,
    )


def own(model: str) -> Mapping[str, Any]:
    """What the `config.json` of a model holds; nothing if it has none, or it is not to be had.

    Raises:
        ValueError, OSError: There is no such folder.
    """
    folder = folder_of_config(model)
    return {} if folder is None else config_of(folder)


def check_speaks(model: str, instead: str) -> None:
    """Refuses a draft net in place of a language model.

    Args:
        model: As the configuration or a flag names it.
        instead: What is to be done, for the message.

    Raises:
        ValueError, OSError: It is one, or there is no such folder.
    """
    kind = own(model).get("model_type")
    for name, spec in DRAFTERS.items():
        if kind in spec.model_types:
            raise ValueError(
                f"{model} is a draft net of the method {name}, which speaks no language alone: {instead}"
            )


def check_shape_of(spec: DrafterSpec, content: Mapping[str, Any], what: str) -> None:
    """Refuses a net that its method cannot build.

    Args:
        spec: The method.
        content: The net's `config.json`, or what stands for it.
        what: Whose it is, for the message.

    Raises:
        ValueError: It cannot; the message says why.
    """
    if spec.read_shape is None:
        return
    try:
        spec.read_shape(content)
    except ValueError as error:
        raise ValueError(f"{what} cannot be run: {error}") from None


def check_own(
    model: str, spec: DrafterSpec, targets: Sequence[str], options: Mapping[str, Any]
) -> None:
    """Refuses a folder that is of another method or that its options do not fit, or a net that reads states which no target has.

    Raises:
        ValueError: The folder is refused; the message says why.
    """
    content = own(model)
    if content and spec.check_model is not None:
        spec.check_model(spec.settled(options), model, content)
    nets = frozenset[str]().union(*(one.model_types for one in DRAFTERS.values()))
    kind = content.get("model_type")
    if not content or (not spec.loads and kind not in nets):
        return
    if kind not in spec.loads:
        raise ValueError(
            f"{model}: its model_type is {kind!r}, which the method {spec.name} does not read; leave method out"
        )
    check_shape_of(spec, content, f"{model}: its config.json")
    if TargetNeed.HIDDEN_STATES not in spec.needs or not content.keys() >= OWN_FIELDS:
        return
    misfits: list[ValueError] = []
    for target in targets:
        try:
            check_fits(content, target_shape(target))
        except ValueError as error:
            misfits.append(error)
    if misfits and len(misfits) == len(targets):
        raise ValueError(f"{model}: {misfits[0]}")
