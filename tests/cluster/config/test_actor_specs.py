"""From a configuration to the actors."""

from __future__ import annotations

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_specs import actor_specs, for_start, listening_at
from outrider.cluster.roster.roster import Role


def test_default_service_is_the_demonstration_pair() -> None:
    """One thread each, the drafter behind the target, and a coordinator that knows the tokenizer."""
    target, drafter, coordinator = actor_specs(parse_config({}, source="test"))

    assert isinstance(target.settings, TargetSettings)
    assert isinstance(drafter.settings, DraftSettings)
    assert isinstance(coordinator.settings, CoordinatorSettings)
    assert drafter.settings.engine is not None
    assert target.settings.engine.num_threads == drafter.settings.engine.num_threads == 1
    assert 0 < target.settings.engine.niceness < drafter.settings.engine.niceness
    assert coordinator.settings.tokenizer == target.settings.engine.model == "demo:target"
    assert [spec.role for spec in (target, drafter, coordinator)] == [
        Role.TARGET,
        Role.DRAFTER,
        Role.COORDINATOR,
    ]


def test_replicas_have_names_of_their_own_and_one_model_name() -> None:
    """Clients see one model, the roster sees each actor."""
    config = {
        "targets": [{"model": "t", "replicas": 2}],
        "drafters": [{"model": "d", "replicas": 3}],
    }
    specs = actor_specs(parse_config(config, source="test"))

    assert [spec.name for spec in specs] == ["t", "t-1", "d", "d-1", "d-2", "coordinator"]
    assert {spec.model for spec in specs[:2]} == {"t"}


def test_resources_are_what_ray_calls_them() -> None:
    """A device asks for its GPU; zeros are left out, for Ray refuses them in a bundle."""
    config = {"targets": [{"model": "t", "device": "cuda", "num_cpus": 0, "resources": {"big": 2}}]}

    assert actor_specs(parse_config(config, source="test"))[0].resources == {"GPU": 1.0, "big": 2.0}


def test_threads_follow_the_reserved_cpus() -> None:
    """Who reserves four CPUs gets four threads, unless told otherwise."""
    config = {
        "targets": [{"model": "t", "num_cpus": 4}],
        "drafters": [{"model": "d", "num_cpus": 0.5}],
    }
    target, drafter, _ = actor_specs(parse_config(config, source="test"))

    assert isinstance(target.settings, TargetSettings)
    assert isinstance(drafter.settings, DraftSettings)
    assert drafter.settings.engine is not None
    assert (target.settings.engine.num_threads, drafter.settings.engine.num_threads) == (4, 1)


def test_room_left_open_is_the_engines_to_choose() -> None:
    """And who shares a GPU chooses by its part of it."""
    target = {"model": "t", "device": "cuda", "num_gpus": 0.5}
    config = {"targets": [target], "drafters": [{"model": "d", "num_slots": 3, "max_context": 99}]}
    first, second, _ = actor_specs(parse_config(config, source="test"))

    assert isinstance(first.settings, TargetSettings)
    assert isinstance(second.settings, DraftSettings)
    engine, other = first.settings.engine, second.settings.engine
    assert other is not None
    assert (engine.num_slots, engine.max_context, engine.gpu_share) == (None, None, 0.5)
    assert (other.num_slots, other.max_context, other.gpu_share) == (3, 99, 1.0)
    assert engine.dtype == other.dtype == "auto"


def test_prompt_lookup_has_no_engine() -> None:
    """It needs no weights."""
    config = {"targets": [{"model": "t"}], "drafters": [{"method": "prompt_lookup"}]}
    drafter = actor_specs(parse_config(config, source="test"))[1]

    assert isinstance(drafter.settings, DraftSettings)
    assert drafter.settings.engine is None


def test_code_of_a_model_is_allowed_to_its_actors_and_to_the_gateway() -> None:
    """The gateway loads the target's tokenizer, so what the target may do it may."""
    for allowed in (False, True):
        config = {"targets": [{"model": "t", "allow_remote_code": allowed}]}
        target, *_, coordinator = actor_specs(parse_config(config, source="test"))
        assert isinstance(target.settings, TargetSettings)
        assert isinstance(coordinator.settings, CoordinatorSettings)
        assert target.settings.engine.allow_remote_code is allowed
        assert coordinator.settings.allow_remote_code is allowed


def test_tabular_target_has_no_tokenizer() -> None:
    """Its prompts are token ids."""
    specs = actor_specs(parse_config({"targets": [{"model": "tabular:/x.npz"}]}, source="test"))

    assert isinstance(specs[-1].settings, CoordinatorSettings)
    assert specs[-1].settings.tokenizer == ""


def test_lockstep_reaches_both_sides() -> None:
    """One of them alone in lockstep would wait for ever."""
    target, drafter, _ = actor_specs(
        parse_config({"speculation": {"lockstep": True}}, source="test")
    )

    assert isinstance(target.settings, TargetSettings)
    assert isinstance(drafter.settings, DraftSettings)
    assert target.settings.lockstep
    assert drafter.settings.lockstep


def test_each_start_has_its_incarnation_and_workers_take_a_free_port() -> None:
    """The coordinator listens where clients look for it."""
    config = {"service": {"listen": "0.0.0.0:5000"}}
    target, _, coordinator = actor_specs(parse_config(config, source="test"))

    assert for_start(target, incarnation=7, host="10.0.0.2").listen == "10.0.0.2:0"
    assert for_start(target, incarnation=7, host="::1").listen == "[::1]:0"
    started = for_start(coordinator, incarnation=7, host="10.0.0.2")
    assert isinstance(started, CoordinatorSettings)
    assert started.listen == "0.0.0.0:5000"
    assert started.internal_listen == "10.0.0.2:0", "metrics are internal"
    assert for_start(target, incarnation=7, host="10.0.0.2").incarnation == 7


def test_restarted_coordinator_keeps_its_port() -> None:
    """Clients find it again where it was."""
    spec = actor_specs(parse_config({"service": {"listen": "127.0.0.1:0"}}, source="test"))[-1]
    again = listening_at(spec, "127.0.0.1:4567")

    assert for_start(again, incarnation=8, host="127.0.0.1").listen == "127.0.0.1:4567"


def test_reuse_of_prefixes_is_turned_off_on_both_sides() -> None:
    """A drafter that still shared would tell by its speed what the target no longer tells."""
    for service, expected in (({}, True), ({"prefix_reuse": False}, False)):
        target, drafter, _ = actor_specs(parse_config({"service": service}, source="test"))
        assert isinstance(target.settings, TargetSettings)
        assert isinstance(drafter.settings, DraftSettings)
        assert target.settings.prefix_reuse is expected
        assert drafter.settings.prefix_reuse is expected
