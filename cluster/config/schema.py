"""The configuration: one YAML or JSON file, and nothing else. Every default is a service that runs on two cores.

Read once, at the edge (`load_config`), and never changed. Who asks for a value out of bounds or for a key that does not
exist is told all problems at once (`config_errors`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Self

from pydantic import ValidationError, model_validator

from outrider.actors.draft.choice.drafter_registry import DRAFTERS, served_verifiers
from outrider.actors.engine.profiles import DEVICE_PREFIX
from outrider.actors.speculation.policies import LengthChoice
from outrider.cluster.config.config_actors import DrafterConfig, TargetConfig
from outrider.cluster.config.config_emulation import emulated
from outrider.cluster.config.config_errors import ConfigError, ConfigProblem, problems_of
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.config_section import Section
from outrider.cluster.config.config_security import Security
from outrider.cluster.config.config_service import (
    Autoscaling,
    ClusterConfig,
    ServiceConfig,
    SpeculationConfig,
)
from outrider.cluster.config.drafter_folders import with_method

DEMO_TARGET = "demo:target"
"""The shipped target model."""

DEMO_DRAFT = "demo:draft"
"""The shipped draft model."""

COORDINATOR = "coordinator"
"""Name of the coordinator; no target or drafter may have it."""


class Config(Section):
    """A service. Without `targets` and `drafters` it is the demonstration pair."""

    service: ServiceConfig = ServiceConfig()
    """What clients see."""

    security: Security = Security()
    """Certificates and tokens."""

    cluster: ClusterConfig = ClusterConfig()
    """Ray, and how actors are placed and watched."""

    targets: tuple[TargetConfig, ...]
    """The target model, or several with one tokenizer, which a request chooses by name. Given without `drafters`, they decode plainly."""

    drafters: tuple[DrafterConfig, ...] = ()
    """The drafters; each may serve every target with its tokenizer."""

    speculation: SpeculationConfig = SpeculationConfig()
    """What a request gets that does not say otherwise."""

    autoscaling: Autoscaling = Autoscaling()
    """When the number of replicas changes, where `min_replicas` and `max_replicas` leave a choice."""

    @property
    def coordinator_names(self) -> tuple[str, ...]:
        """The name of each coordinator; a single one has the plain name."""
        if self.service.coordinators == 1:
            return (COORDINATOR,)
        return tuple(f"{COORDINATOR}-{index}" for index in range(self.service.coordinators))

    @property
    def emulated(self) -> tuple[str, ...]:
        """Profiles of the emulated devices, each once; empty if all devices are real."""
        devices = [actor.device for actor in (*self.targets, *self.drafters)]
        profiles = (d.removeprefix(DEVICE_PREFIX) for d in devices if d.startswith(DEVICE_PREFIX))
        return tuple(dict.fromkeys(profiles))

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if not self.targets:
            raise ValueError("targets is empty: name at least one model, or leave the key out")
        taken = dict.fromkeys((COORDINATOR, *self.coordinator_names), "the coordinator")
        for kind, actors in (("targets", self.targets), ("drafters", self.drafters)):
            for index, actor in enumerate(actors):
                for name in dict.fromkeys((actor.name, *actor.replica_names(actor.most))):
                    if name in taken:
                        raise ValueError(
                            f"{kind}[{index}].name {name!r} is taken by {taken[name]}; give it another name"
                        )
                    taken[name] = f"{kind}[{index}]"
        return self

    @model_validator(mode="after")
    def _check_verifier(self) -> Self:
        """Refuses a verifier that none of the drafters can serve: requests that name none would be decoded plainly."""
        verifier = self.speculation.verifier
        methods = {drafter.method: DRAFTERS[drafter.method] for drafter in self.drafters}
        if methods and not any(verifier in served_verifiers(one) for one in methods.values()):
            raise ValueError(
                f"speculation.verifier is {verifier!r}, which needs a drafter that gives probabilities; {', '.join(methods)} give none"
            )
        return self

    @model_validator(mode="after")
    def _check_draft_length(self) -> Self:
        """Refuses a draft length that none of the drafters offers: requests that name none would be decoded plainly."""
        length = self.speculation.draft_length
        offered = {
            drafter.name: DRAFTERS[drafter.method].lengths(drafter.model or "")
            for drafter in self.drafters
        }
        if offered and not any(length in one for one in offered.values()):
            offers = (f"{name} offers {', '.join(one)}" for name, one in offered.items())
            trained = "; it needs a decision model, which `outrider train decision` makes"
            raise ValueError(
                f"speculation.draft_length is {length.value!r}, which none of the drafters offers: {'; '.join(offers)}"
                + (trained if length is LengthChoice.DECISION else "")
            )
        return self


def parse_config(data: Mapping[str, Any], *, source: str) -> Config:
    """The configuration in a mapping of plain values.

    Raises:
        ConfigError: Something is not allowed; names every problem, its place and what is allowed.
    """
    try:
        # As JSON, because strict mode then still takes arrays for tuples and strings for enumerations.
        text = json.dumps(_filled(data), default=str)
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # of YAML that holds itself, or whose keys are lists
        raise ConfigError(source, (ConfigProblem("", f"not valid: {error}"),)) from None
    try:
        return Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(source, problems_of(error, Config)) from None


def load_config(path: Path) -> Config:
    """The configuration in a file: JSON with the suffix `.json`, else YAML.

    Raises:
        ConfigError: The file cannot be read or parsed, or something in it is not allowed.
    """
    return parse_config(read_mapping(path), source=str(path))


def with_flags(
    data: Mapping[str, Any],
    *,
    targets: tuple[str, ...] = (),
    drafts: tuple[str, ...] = (),
    listen: str | None = None,
    emulate: str | None = None,
) -> dict[str, Any]:
    """A configuration's mapping with command line flags laid over it.

    `targets` and `drafts` replace the lists of the file. A target alone, without drafters in the file, decodes plainly.
    `emulate` is the profile of the targets' device and, behind a comma, that of the drafters'; see `emulation.emulated`.
    """
    merged = dict(data)
    if targets:
        merged["targets"] = [{"model": model} for model in targets]
    if drafts:
        merged["drafters"] = [_drafter(draft) for draft in drafts]
    if emulate is not None:
        merged = emulated(merged, emulate)
    if listen is not None:
        service = merged.get("service") or {}
        if not isinstance(service, Mapping):
            raise ConfigError(
                "flags", (ConfigProblem("service", "must be a mapping of keys to values"),)
            )
        merged["service"] = {**service, "listen": listen}
    return merged


def _drafter(name: str) -> dict[str, str]:
    """A drafter by one word: a method without a model, or a draft model of whatever method loads it."""
    method = DRAFTERS.get(name)
    return {"method": name} if method is not None and not method.needs_model else {"model": name}


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration, for editors and checks."""
    generated = Config.model_json_schema()
    # The validator fills `targets` in, which the schema generator cannot see.
    generated["required"] = [key for key in generated.get("required", []) if key != "targets"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated}


def _filled(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in the demonstration pair where no target is given, the names of actors that have none, and what folders of drafters say.

    Done before validation, not in a validator: what a validator returns is no longer JSON to strict mode.
    """
    filled = dict(data)
    if "targets" not in filled:
        filled["targets"] = [{"model": DEMO_TARGET}]
        filled.setdefault("drafters", [{"model": DEMO_DRAFT}])
    for kind in ("targets", "drafters"):
        if isinstance(filled.get(kind), list):
            filled[kind] = [_named(actor) for actor in filled[kind]]
    if isinstance(filled.get("drafters"), list):
        filled["drafters"] = [with_method(one, filled["targets"]) for one in filled["drafters"]]
    return filled


def _named(actor: Any) -> Any:
    if not isinstance(actor, Mapping) or "name" in actor:
        return actor
    origin = actor.get("model") or actor.get("method")
    return {**actor, "name": name_of(origin)} if isinstance(origin, str) and origin else actor


def name_of(model: str) -> str:
    """A model's short name: `demo:target` is demo-target, `law:agree70/draft` agree70-draft, a hub id or a folder its last part."""
    kind, _, rest = model.partition(":")
    if rest and kind == "demo":
        return f"demo-{rest}"
    if rest and kind == "law":
        return rest.replace("/", "-")
    path = PurePath(rest if rest and kind == "tabular" else model)
    last = path.stem if kind == "tabular" else path.name
    kept = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in last
    )
    return kept.strip("._-")[:64] or "model"
