"""What has to be done so that a service becomes what a configuration says."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from outrider.cluster.config.schema import Config, parse_config
from outrider.cluster.placement.actor_specs import actor_specs
from outrider.cluster.supervise.changes import (
    RESTART_ONLY,
    Change,
    Kind,
    NeedsRestart,
    changed_in_place,
    check_changeable,
    plan,
)

BEFORE: dict[str, Any] = {
    "targets": [{"model": "org/big", "replicas": 2}],
    "drafters": [{"model": "org/small"}],
}


def changes(**sections: Any) -> list[tuple[Kind, str]]:
    """What a configuration with these sections changes."""
    return [(change.kind, change.name) for change in planned(**sections)]


def planned(**sections: Any) -> tuple[Change, ...]:
    """The plan for a configuration with these sections."""
    running = {spec.name: spec for spec in actor_specs(parse_config(BEFORE, source="test"))}
    return plan(running, actor_specs(parse_config({**BEFORE, **sections}, source="test")))


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


def test_what_differs_is_told_once() -> None:
    """A coordinator's deployment is the actor's, too."""
    changed = [one for one in planned(targets=[{"model": "org/other"}]) if one.kind is Kind.REPLACE]
    (told,) = [one.reason.removeprefix("changed: ").split(", ") for one in changed]
    assert "deployment" in told
    assert len(set(told)) == len(told)


def test_an_option_of_an_actor_replaces_it() -> None:
    """With the reason."""
    (change,) = planned(drafters=[{"model": "org/small", "width": 2, "resources": {"x": 1}}])
    assert (change.kind, change.name) == (Kind.REPLACE, "small")
    assert "width" in change.reason
    assert "resources" in change.reason


OTHER: dict[str, dict[str, Any]] = {
    "service": {
        "listen": "127.0.0.1:1",
        "advertise": "host",
        "coordinators": 2,
        "reflection": False,
        "metrics": "127.0.0.1:9",
        "otlp_endpoint": "http://127.0.0.1:4",
        "log_format": "json",
        "default_max_tokens": 9,
        "max_waiting": 9,
        "prefix_reuse": False,
    },
    "speculation": {
        "enabled": False,
        "verifier": "exact_match",
        "max_nodes": 9,
        "max_depth": 9,
        "draft_length": "confidence",
        "roots": "target",
        "aggressiveness": 0.5,
        "decision_threshold": 0.5,
        "adaptive": False,
        "lockstep": True,
        "selector": "ucb",
        "drafters_at_work": 2,
    },
    "autoscaling": {
        "interval_s": 1.0,
        "upscale_delay_s": 1.0,
        "downscale_delay_s": 1.0,
        "target_occupancy": 0.5,
        "drain_s": 1.0,
    },
    "targets": {
        "name": "other",
        "model": "org/other",
        "niceness": 6,
        "max_batch_nodes": 9,
        "max_patience_s": 0.1,
    },
    "drafters": {
        "name": "other",
        "model": "org/other",
        "method": "eagle3",
        "options": {"reuse": True},
        "niceness": 6,
        "width": 2,
        "max_ahead": 64,
        "bytes_per_token": 9.0,
    },
}
"""Another value of each field, by section."""

OF_BOTH: dict[str, Any] = {
    "dtype": "float32",
    "device": "cuda",
    "num_slots": 2,
    "max_context": 99,
    "max_scratch": 260,
    "prefill_chunk": 32,
    "num_threads": 2,
    "allow_remote_code": True,
    "direct_forward": False,
    "cuda_graphs": "on",
    "replicas": 3,
    "min_replicas": 3,
    "max_replicas": 3,
    "num_cpus": 2.0,
    "num_gpus": 0.5,
    "resources": {"x": 1},
    "node_labels": {"gpu": "h100"},
}
"""Of targets and drafters alike."""

BESIDE: dict[str, dict[str, Any]] = {
    "options": {"method": "eagle3"},
    "min_replicas": {"replicas": 4},
}
"""What else a section must say for a field to have that value, before and after."""

NOT_STARTED = {"min_replicas", "max_replicas", *OTHER["autoscaling"]}
"""Of no actor that runs: how many there may be later, and when."""


@pytest.mark.parametrize("section", list(OTHER))
def test_no_field_is_overlooked(section: str) -> None:
    """Each is carried out, or named as one that needs a restart; a field that is new has to be added here."""
    listed = section in ("targets", "drafters")
    others = {**OTHER[section], **(OF_BOTH if listed else {})}
    kind = Config.model_fields[section].annotation
    known = (get_args(kind)[0] if listed else kind).model_fields  # type: ignore[union-attr]
    assert set(others) == set(known)
    for field, value in others.items():
        base = {**(BEFORE[section][0] if listed else {}), **BESIDE.get(field, {})}
        found = []
        for one in (base, {**base, field: value}):
            found.append(parse_config({**BEFORE, section: [one] if listed else one}, source="test"))
        before, after = found
        named = ""
        try:
            check_changeable(before, after)
        except NeedsRestart as refusal:
            named = str(refusal)
        if named:
            assert f"{section}.{field}" in named
            continue
        done = plan({spec.name: spec for spec in actor_specs(before)}, actor_specs(after))
        assert bool(done) != (field in NOT_STARTED), field
        at_once = changed_in_place(before, after)
        assert bool(at_once) == (field in NOT_STARTED), field
        assert all(f".{field} (" in one for one in at_once)


def test_no_section_is_overlooked() -> None:
    """Each is tried field by field, or needs a restart as a whole."""
    assert {*OTHER, *(key for key in RESTART_ONLY if "." not in key)} == set(Config.model_fields)


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
