"""Every drafter that the package can start by itself, found in what it ships and in the registry of methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.actors import demo
from outrider.actors.draft.choice.drafter_registry import DRAFTERS, loading_method
from outrider.actors.draft.state.drafter_spec import TargetNeed
from outrider.actors.engine.engine_settings import DEMO_PREFIX

MODELS = {"hidden_reuse": "eagle3"}
"""The shipped models of methods that no shipped model is named after."""

NUM_SIBLINGS = 4
"""Sequences of a request where drafters read siblings."""

BESIDE = "prompt_lookup"
"""Joins others to unions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Who drafts."""

    name: str
    """In the table."""

    drafters: Mapping[str, Mapping[str, Any]]
    """Sections of the configuration by drafter's name: method, and model where it has one."""

    @property
    def num_sequences(self) -> int:
        """Of a request."""
        needs = [DRAFTERS[drafter["method"]].needs for drafter in self.drafters.values()]
        return NUM_SIBLINGS if any(TargetNeed.SIBLINGS in need for need in needs) else 1


def ways() -> dict[str, Way]:
    """Each shipped checkpoint, each method without a model, and unions of a method with `BESIDE`, by name."""
    alone = _with_model() | {
        name: {"method": name} for name, spec in DRAFTERS.items() if not spec.needs_model
    }
    sets: list[tuple[str, ...]] = [(name,) for name in alone]
    sets += [
        (name, BESIDE)
        for name in alone
        if name in ("draft", *demo.HEADS) or _reads_siblings(alone[name])
    ]
    found = {}
    for names in sets:
        name = " + ".join(names)
        found[name] = Way(name=name, drafters={each: alone[each] for each in names})
    return found


def _reads_siblings(drafter: Mapping[str, Any]) -> bool:
    return TargetNeed.SIBLINGS in DRAFTERS[drafter["method"]].needs


def _with_model() -> dict[str, dict[str, Any]]:
    """Raises:
    LookupError: No shipped checkpoint is known for a method.
    """
    found = {}
    for name in (*demo.DRAFTS, *demo.NESTED, *demo.HEADS):
        model = f"{DEMO_PREFIX}{name}"
        found[name] = {"method": loading_method(model) or "autoregressive", "model": model}
    served = {drafter["method"] for drafter in found.values()}
    for name, spec in DRAFTERS.items():
        if spec.needs_model and name not in served:
            if name not in MODELS:
                raise LookupError(
                    f"the method {name} needs a model, and no shipped one is known for it; ship one, or name it in "
                    "bench.equality.shipped_drafters.MODELS"
                )
            found[name] = {"method": name, "model": f"{DEMO_PREFIX}{MODELS[name]}"}
    return found
