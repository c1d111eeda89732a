"""What the folders of drafters say of themselves: their method, their format, and whether they fit the target. Told where the folder lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.actors.draft.choice.drafter_registry import (
    DRAFTERS,
    check_own,
    check_shape_of,
    loading_method,
)
from outrider.actors.draft.on_states.known_formats import checkpoint_of
from outrider.cluster.config.config_actors import DrafterConfig, TargetConfig
from outrider.cluster.config.config_errors import ConfigProblem


def with_method(drafter: Any, targets: Any) -> Any:
    """A drafter's section with the method that its folder asks for, where it names none.

    A checkpoint of another project's format does not say which target it was trained for, and gets the service's, if it has one only.

    Args:
        drafter: The section, before validation.
        targets: Those of the targets, likewise.
    """
    if not isinstance(drafter, Mapping) or not isinstance(model := drafter.get("model"), str):
        return drafter
    filled = dict(drafter)
    if "method" not in filled and (loading := loading_method(model)) is not None:
        filled["method"] = loading
    method = DRAFTERS.get(str(filled.get("method")))
    options = filled.get("options") or {}
    if method is None or not isinstance(options, Mapping) or "target" in options:
        return filled
    if "target" in method.options.__dataclass_fields__ and _is_foreign(model):
        models = {one.get("model") for one in targets if isinstance(one, Mapping)}
        if len(models) == 1 and isinstance(target := models.pop(), str):
            filled["options"] = {**options, "target": target}
    return filled


def found_drafters(
    drafters: Sequence[DrafterConfig], targets: Sequence[TargetConfig]
) -> tuple[tuple[str, ...], tuple[ConfigProblem, ...]]:
    """What the checkpoints of drafters were found to be, a sentence each, and what is wrong with the others."""
    models = [target.model for target in targets]
    sentences: list[str] = []
    problems: list[ConfigProblem] = []
    for index, drafter in enumerate(drafters):
        try:
            if (sentence := told(drafter, models)) is not None:
                sentences.append(sentence)
        except (OSError, ValueError) as error:
            problems.append(ConfigProblem(f"drafters[{index}].model", str(error)))
    return tuple(sentences), tuple(problems)


def told(drafter: DrafterConfig, targets: Sequence[str]) -> str | None:
    """What a drafter's checkpoint was found to be, in a sentence; None: nothing but what its section says.

    Args:
        drafter: Its section.
        targets: The models of the service.

    Raises:
        ValueError, OSError: It cannot be run, or does not fit the target; the message says why.
    """
    if drafter.model is None:
        return None
    found = checkpoint_of(drafter.model)
    spec = DRAFTERS[drafter.method]
    if found is None:
        check_own(drafter.model, spec, targets, drafter.options)
        return None
    if found.format.model_type not in spec.loads:
        raise ValueError(
            f"{drafter.model} is {found.format.title}, which the method {drafter.method} does not read; leave method out"
        )
    target = str(drafter.options.get("target", ""))
    translation = found.translated(target)
    check_shape_of(spec, translation.config, f"{drafter.model} is {found.format.title}, which")
    found.check_files()
    found.check_ids(translation)
    for_whom = f" for {target}" if target else ""
    reads = translation.config.get("taps", ["norm"])
    return (
        f"{drafter.model} is {found.format.title}{for_whom}, read by the method {drafter.method} "
        f"from the target's layers {', '.join(map(str, reads))}"
        + "".join(f"; taken for granted: {note}" for note in translation.notes)
    )


def _is_foreign(model: str) -> bool:
    try:
        return checkpoint_of(model) is not None
    except (OSError, ValueError):
        return False
