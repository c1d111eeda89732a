"""`--emulate`: the devices of a configuration replaced by emulated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.engine.profiles import DEVICE_PREFIX, draft_profile, find_profile
from outrider.cluster.config.config_errors import ConfigError, ConfigProblem

EMULATED_TARGET = "law:agree70"
"""The target's model where none is named: an emulated device runs no checkpoint."""

EMULATED_DRAFT = "law:agree70/draft"
"""The drafter's."""


def emulated(data: Mapping[str, Any], profiles: str) -> dict[str, Any]:
    """A configuration's mapping on emulated devices. Without targets it gets a pair of laws.

    Args:
        data: The configuration.
        profiles: The profile of the targets' device and, behind a comma, that of the drafters'; without one it is found by
            `profiles.draft_profile`.

    Raises:
        ConfigError: There is no such profile, or the drafters' is missing and does not follow.
    """
    target, _, draft = profiles.partition(",")
    merged = dict(data)
    try:
        find_profile(target)
        if "targets" not in merged:
            merged["targets"] = [{"model": EMULATED_TARGET}]
            merged.setdefault("drafters", [{"model": EMULATED_DRAFT}])
        if merged.get("drafters"):
            draft = draft or draft_profile(target)
            find_profile(draft)
    except ValueError as error:
        raise ConfigError("flags", (ConfigProblem("--emulate", str(error)),)) from None
    merged["targets"] = _on(merged["targets"], DEVICE_PREFIX + target)
    if merged.get("drafters"):
        merged["drafters"] = _on(merged["drafters"], DEVICE_PREFIX + draft)
    return merged


def _on(actors: Any, device: str) -> Any:
    """Actors with a model on this device; whatever else stands there is for the checks that follow."""
    if not isinstance(actors, (list, tuple)):
        return actors
    return [
        {**actor, "device": device} if isinstance(actor, Mapping) and "model" in actor else actor
        for actor in actors
    ]
