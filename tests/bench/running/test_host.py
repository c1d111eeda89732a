"""What a process of the benchmark is told, and how its threads are told apart."""

from __future__ import annotations

import pytest

from bench.running.bench_service import pair_config
from bench.running.host import settings_of, thread_kind
from bench.suites.parts.costs_suite import memory, outside_ms
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.config.coordinator_settings import CoordinatorSettings

CONFIG = pair_config("demo:target", lockstep=True)


def test_workers_listen_where_they_are_told() -> None:
    """And wait for each other if the service is in lock-step."""
    for name, kind in (("target", TargetSettings), ("draft", DraftSettings)):
        settings = settings_of({"config": CONFIG, "name": name, "host": "10.0.0.1"})
        assert isinstance(settings, kind)
        assert (settings.listen, settings.lockstep) == ("10.0.0.1:0", True)


def test_a_coordinator_knows_the_others_from_the_start() -> None:
    """There is no roster."""
    order = {
        "config": CONFIG,
        "name": "coordinator",
        "host": "127.0.0.1",
        "targets": ["127.0.0.1:1"],
        "drafters": [["draft", "127.0.0.1:2"]],
    }
    settings = settings_of(order)
    assert isinstance(settings, CoordinatorSettings)
    assert settings.targets == ("127.0.0.1:1",)
    assert settings.drafters == (("draft", "127.0.0.1:2"),)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("MainThread", "loop"), ("draft-worker", "worker"), ("asyncio_0", "other"), (None, "native")],
)
def test_kinds_of_threads(name: str | None, kind: str) -> None:
    """By the names that the actors give."""
    names: dict[int | None, str] = {7: name} if name is not None else {}
    assert thread_kind(7, names) == kind


def test_the_model_is_taken_from_its_thread() -> None:
    """What is left is what everything else costs, for each round."""
    before = {"target": {"cpu_s": {"loop": 1.0, "worker": 2.0}}}
    after = {"target": {"cpu_s": {"loop": 1.5, "worker": 12.0}}}
    found = outside_ms(before, after, {"target": 9.0}, rounds=100)
    assert found == {"target loop": pytest.approx(5.0), "target worker": pytest.approx(10.0)}


def test_memory_of_a_round() -> None:
    """Page faults are counted in KiB."""
    before = {"draft": {"page_faults": 10, "collections": 1, "blocks": 500}}
    after = {"draft": {"page_faults": 20, "collections": 3, "blocks": 480}}
    assert memory(before, after, rounds=10) == {
        "fresh_kib_per_round": {"draft": pytest.approx(4.0)},
        "collections_per_1000_rounds": {"draft": pytest.approx(200.0)},
        "objects_kept_per_round": {"draft": pytest.approx(-2.0)},
    }
