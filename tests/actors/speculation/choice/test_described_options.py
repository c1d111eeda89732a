"""Options of methods of other packages: what a description refuses, and what the configuration says of a check that fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.draft.state.drafter_spec import DrafterSpec
from outrider.actors.train.trainer_spec import TrainerSpec
from outrider.cluster.config import config_actors, schema
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.schema import parse_config

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass(frozen=True)
class Unknown:
    """A type that is imported for type checkers alone."""

    share: Decimal | None = None


@dataclass(frozen=True)
class Undecided:
    """A check that raises what it should not."""

    often: int = 1

    def __post_init__(self) -> None:
        if self.often > 2:
            raise KeyError("often")


def described(kind: str, options: type[Any]) -> DrafterSpec | TrainerSpec:
    """A description with these options."""
    if kind == "drafter":
        return replace(DRAFTERS["suffix"], name="odd", options=options)
    return TrainerSpec(name="odd", run=lambda given: given, options=options, summary="")


@pytest.mark.parametrize("kind", ["drafter", "trainer"])
def test_types_that_are_not_there_are_refused_with_the_description(kind: str) -> None:
    """By name, before a flag or a configuration asks for them."""
    says = f"{kind} odd: the types of its options cannot be told: NameError: name 'Decimal'"
    with pytest.raises(ValueError, match=says):
        described(kind, Unknown)
    with pytest.raises(
        ValueError, match=f"{kind} odd: options is <class 'int'>, which is no dataclass"
    ):
        described(kind, int)
    assert described(kind, Undecided).options is Undecided


def test_a_check_that_fails_is_a_problem_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it raises; the method is named."""
    drafters = {"odd": replace(DRAFTERS["suffix"], name="odd", options=Undecided)}
    for module in (config_actors, schema):
        monkeypatch.setattr(module, "DRAFTERS", drafters)
    drafter = {"name": "d", "method": "odd", "options": {"often": 2}}
    data: dict[str, Any] = {"targets": [{"model": "demo:target"}], "drafters": [drafter]}
    assert parse_config(data, source="x").drafters[0].options == {"often": 2}
    drafter["options"] = {"often": 3}
    with pytest.raises(ConfigError, match="options of odd cannot be used: KeyError: 'often'"):
        parse_config(data, source="x")
