"""Checks of who drafts for a text: the selector, its numbers, and how many work at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest
from tests.cluster.validation.cases import LIMITS, settle

from outrider.actors.speculation.options import Speculation
from outrider.cluster.config.config_service import SpeculationConfig as Configured
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import sampling_pb2


def settled(defaults: Speculation | None = None, **options: Any) -> Speculation:
    """The options in force for a request of these."""
    limits = replace(LIMITS, speculation=defaults or LIMITS.speculation)
    found: Speculation = settle(
        limits, speculation=sampling_pb2.SpeculationOptions(**options)
    ).speculation
    return found


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({"selector": "best"}, "selector", "'best'; choose among least_busy, ucb"),
        ({"selector": ""}, "selector", "choose among least_busy, ucb"),
        ({"selector_options": {"prior": 1.0}}, "selector_options", "least_busy has no option"),
        (
            {"selector": "ucb", "selector_options": {"prior": -1.0}},
            "selector_options",
            "prior of ucb must be in [0, 100], got -1",
        ),
        (
            {"selector": "ucb", "selector_options": {"prior": float("nan")}},
            "selector_options",
            "got nan",
        ),
        ({"drafters_at_work": 0}, "drafters_at_work", "must be 1 to 64, got 0"),
        ({"drafters_at_work": 65}, "drafters_at_work", "must be 1 to 64, got 65"),
        ({"enabled": False, "selector": "ucb"}, "selector", "enabled is false"),
        ({"enabled": False, "drafters_at_work": 1}, "drafters_at_work", "enabled is false"),
    ],
)
def test_wrong_selections_are_refused(options: dict[str, Any], field: str, problem: str) -> None:
    """With INVALID_ARGUMENT, the field's name, and what is possible."""
    with pytest.raises(Refusal) as refused:
        settled(**options)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.field == f"speculation.{field}"
    assert problem in refused.value.message


def test_the_request_goes_before_the_configuration() -> None:
    """Where neither says how many, that is the selector's."""
    assert settled().selector == "least_busy"
    assert settled().drafters_at_work is None
    assert settled(selector="ucb").drafters_at_work is None
    assert settled(drafters_at_work=3).drafters_at_work == 3
    configured = Configured(selector="ucb", drafters_at_work=2).options
    assert settled(configured).selector == "ucb"
    assert settled(configured).drafters_at_work == 2
    assert settled(configured, drafters_at_work=5).drafters_at_work == 5
    assert settled(configured, selector="least_busy").selector == "least_busy"


def test_numbers_are_the_selectors_own_where_nobody_names_them() -> None:
    """All of them, so that whoever builds it need not know."""
    assert settled(selector="ucb", selector_options={"prior": 0.0}).selector_options == {
        "exploration": 0.1,
        "prior": 0.0,
    }


@pytest.mark.parametrize(("field", "value"), [("selector", "best"), ("drafters_at_work", 0)])
def test_a_configuration_that_cannot_be_is_refused(field: str, value: object) -> None:
    """Before anything starts."""
    with pytest.raises(ValueError, match=field):
        Configured(**{field: value})  # type: ignore[arg-type]
