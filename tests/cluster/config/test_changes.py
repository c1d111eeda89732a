"""What has to be done so that a service becomes what a configuration says."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.fleet import fleet
from outrider.cluster.supervise.changes import Change, Kind, NeedsRestart, check_changeable, plan

BEFORE: dict[str, Any] = {
    "targets": [{"model": "org/big", "replicas": 2}],
    "drafters": [{"model": "org/small"}],
}


def changes(**sections: Any) -> list[tuple[Kind, str]]:
    """What a configuration with these sections changes."""
    return [(change.kind, change.name) for change in planned(**sections)]


def planned(**sections: Any) -> tuple[Change, ...]:
    """The plan for a configuration with these sections."""
    running = {spec.name: spec for spec in fleet(parse_config(BEFORE, source="test"))}
    return plan(running, fleet(parse_config({**BEFORE, **sections}, source="test")))


def test_the_same_configuration_changes_nothing() -> None:
    """However often it is applied."""
    assert changes() == []


def test_drafters_come_and_go() -> None:
    """The others are left alone."""
    drafters = [{"model": "org/tiny"}, {"method": "prompt_lookup"}]
    assert changes(drafters=drafters) == [
        (Kind.ADD, "tiny"),
        (Kind.ADD, "prompt_lookup"),
        (Kind.REMOVE, "small"),
    ]


def test_replicas_scale() -> None:
    """Up and down, by name; those that stay are not touched."""
    more = [{"model": "org/big", "replicas": 3}]
    assert changes(targets=more) == [(Kind.ADD, "big-2")]
    less = [{"model": "org/big", "replicas": 1, "name": "big"}]
    assert changes(targets=less) == [(Kind.REMOVE, "big-1")]


def test_a_model_is_exchanged_with_its_coordinator() -> None:
    """Texts that one model began are not continued by another: whoever serves the new one is new."""
    swapped = planned(targets=[{"model": "org/better", "name": "big", "replicas": 2}])
    assert [(one.kind, one.name) for one in swapped] == [
        (Kind.REPLACE, "big"),
        (Kind.REPLACE, "big-1"),
        (Kind.REPLACE, "coordinator"),
    ]
    assert "engine.model" in swapped[0].reason
    assert "deployment" in swapped[2].reason


def test_limits_change_the_coordinator_alone() -> None:
    """It is replaced at its own address."""
    (change,) = planned(service={"max_waiting": 7})
    assert (change.kind, change.name) == (Kind.REPLACE, "coordinator")
    assert change.reason == "changed: max_waiting"
    assert "none" in change.cost


def test_an_option_of_an_actor_replaces_it() -> None:
    """With the reason."""
    (change,) = planned(drafters=[{"model": "org/small", "width": 2, "resources": {"x": 1}}])
    assert (change.kind, change.name) == (Kind.REPLACE, "small")
    assert "width" in change.reason
    assert "resources" in change.reason


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"service": {"listen": "127.0.0.1:1"}}, "service.listen"),
        ({"cluster": {"lease_s": 5.0}}, "cluster.lease_s"),
    ],
)
def test_what_needs_a_restart_is_named(sections: dict[str, Any], key: str) -> None:
    """Before anything is done."""
    before = parse_config(BEFORE, source="test")
    with pytest.raises(NeedsRestart, match=key):
        check_changeable(before, parse_config({**BEFORE, **sections}, source="test"))
    check_changeable(before, parse_config({**BEFORE, "drafters": []}, source="test"))
