"""What has to be done so that a service becomes what a configuration says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any

from outrider.cluster.config.schema import Config
from outrider.cluster.placement.actor_specs import ActorSpec
from outrider.cluster.roster.roster import Role

RESTART_ONLY = (
    "cluster",
    "security",
    "service.listen",
    "service.advertise",
    "service.metrics",
    "service.log_format",
)
"""Keys that hold for as long as a service runs."""

IN_PLACE = ("autoscaling",)
"""Keys that are looked at whenever they are needed, so that a change needs no new actor."""

BOUNDS = ("min_replicas", "max_replicas")
"""Likewise, of each target and drafter."""


class Kind(StrEnum):
    """What becomes of an actor."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one actor."""

    kind: Kind
    name: str
    """In the configuration."""

    role: Role
    spec: ActorSpec | None = None
    """What is started; None for one that is removed."""

    reason: str = ""
    """What is different, for one that is replaced."""

    @property
    def cost(self) -> str:
        """What becomes of the requests that it serves."""
        match self.kind, self.role:
            case Kind.ADD, _:
                return "none"
            case _, Role.DRAFTER:
                return "none: texts go on without it"
            case _, Role.TARGET:
                return "none: its texts end first, new ones go to others"
            case _:
                return "none: its streams end first, new ones reach another one at the same address"


class NeedsRestart(ValueError):
    """Keys differ that a running service cannot change; names them."""


def check_changeable(running: Config, wanted: Config) -> None:
    """Makes sure that only such keys differ as can change while the service runs.

    Raises:
        NeedsRestart: Others do.
    """
    before, after = running.model_dump(mode="json"), wanted.model_dump(mode="json")
    differing = [key for key in RESTART_ONLY if _at(before, key) != _at(after, key)]
    if differing:
        raise NeedsRestart(
            f"{', '.join(_details(before, after, key) for key in differing)}: a running service cannot change that; "
            "start it again, or leave the value as it is"
        )


def changed_in_place(running: Config, wanted: Config) -> tuple[str, ...]:
    """The keys that differ and hold at once, without a new actor; each with the value before and after."""
    before, after = running.model_dump(mode="json"), wanted.model_dump(mode="json")
    found = [
        _told(f"{key}.{part}", old, after[key][part])
        for key in IN_PLACE
        for part, old in before[key].items()
        if old != after[key][part]
    ]
    for section in ("targets", "drafters"):
        entries = {one["name"]: one for one in before[section]}
        for entry in after[section]:
            old = entries.get(entry["name"], entry)
            found += [
                _told(f"{section}.{entry['name']}.{part}", old[part], entry[part])
                for part in BOUNDS
                if old[part] != entry[part]
            ]
    return tuple(found)


def plan(running: Mapping[str, ActorSpec], wanted: Sequence[ActorSpec]) -> tuple[Change, ...]:
    """The changes, additions first.

    Args:
        running: What runs, as configured, by name.
        wanted: What should.
    """
    added = [
        Change(kind=Kind.ADD, name=spec.name, role=spec.role, spec=spec)
        for spec in wanted
        if spec.name not in running
    ]
    replaced = [
        Change(
            kind=Kind.REPLACE,
            name=spec.name,
            role=spec.role,
            spec=spec,
            reason=f"changed: {', '.join(dict.fromkeys(_differences(running[spec.name], spec)))}",
        )
        for spec in wanted
        if spec.name in running and running[spec.name] != spec
    ]
    names = {spec.name for spec in wanted}
    removed = [
        Change(kind=Kind.REMOVE, name=name, role=spec.role)
        for name, spec in running.items()
        if name not in names
    ]
    return (*added, *replaced, *removed)


def _differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Names of the fields that differ, those of parts with the name of the part."""
    found = []
    for field in fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        name = f"{prefix}{field.name}"
        if is_dataclass(before) and type(before) is type(after):
            found += _differences(before, after, "" if field.name == "settings" else f"{name}.")
        else:
            found.append(name)
    return found


def _at(content: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        content = content[part]
    return content


def _told(key: str, old: Any, new: Any) -> str:
    return f"{key} ({old!r} to {new!r})"


def _details(before: dict[str, Any], after: dict[str, Any], key: str) -> str:
    """The key, or those of its parts that differ."""
    old, new = _at(before, key), _at(after, key)
    if not isinstance(old, dict):
        return _told(key, old, new)
    return ", ".join(f"{key}.{part}" for part in old if old[part] != new[part])
