"""The planner: what the closed form must say in any case, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.client.cli.app import app
from outrider.cluster.plan import planner
from outrider.cluster.plan.plan_request import PlanRequest
from outrider.cluster.plan.planner import where_it_pays
from outrider.cluster.plan.serving_ways import Option, options
from outrider.cluster.plan.trial import Tried, scenario, tried

TARGET = {"profile": "25ms+20us", "gpus": 4, "usd_per_gpu_hour": 3.0}
NEAR = {"name": "near", "profile": "1.5ms+5us", "agrees": 70}


def request(**changes: Any) -> PlanRequest:
    """A small plan."""
    given = {"target": TARGET, "drafters": [NEAR], "traffic": {"requests": 1, "tokens": 64}}
    return PlanRequest.model_validate({**given, **changes})


def best(of: PlanRequest) -> Option:
    """The fastest way with a drafter and one target."""
    found = [one for one in options(of) if one.drafter is not None and one.targets == 1]
    return max(found, key=lambda one: one.speed_up)


def with_drafter(**changes: Any) -> Option:
    """The same with another drafter."""
    return best(request(drafters=[{**NEAR, **changes}]))


def test_better_faster_and_nearer_drafters_are_expected_to_be_faster() -> None:
    """Each by itself."""
    here = best(request())
    assert with_drafter(agrees=85).speed_up > here.speed_up
    assert with_drafter(profile="6ms+5us").speed_up < here.speed_up
    assert with_drafter(latency_ms=30.0).speed_up < here.speed_up


def test_latency_matters_more_than_quality() -> None:
    """Yan et al. (2024): a draft that is twice as fast and agrees less often wins."""
    deep = with_drafter(profile="13.13ms+10us", agrees=75)
    wide = with_drafter(profile="6.69ms+10us", agrees=70)
    assert wide.speed_up > deep.speed_up


def test_no_way_is_expected_to_be_slower_than_plain_decoding() -> None:
    """Not even a drafter that is slower than the target."""
    assert with_drafter(profile="60ms+5us", agrees=35, latency_ms=200.0).speed_up == 1.0


def test_gpus_and_prices_are_counted() -> None:
    """Four of a target, one of a drafter."""
    option = best(request())
    assert option.gpus == 5
    assert option.usd_per_s == pytest.approx((4 * 3.0 + 1.0) / 3600)
    assert all(one.gpus <= 4 for one in options(request(gpus=4)))


def test_drafters_stop_paying_where_rows_are_dear() -> None:
    """Each row costs a tenth of a pass, so with many sessions candidates do not pay."""
    dear = request(
        target={**TARGET, "profile": "10ms+1ms"}, drafters=[{**NEAR, "usd_per_gpu_hour": 3.0}]
    )
    points = list(where_it_pays(dear))
    assert points[0].pays
    assert not points[-1].pays


def test_a_trial_runs_the_service() -> None:
    """And plain decoding is what the closed form says it is."""
    small = request(traffic={"requests": 2, "tokens": 16, "prompt": 8}, nodes=[8])
    plain = next(one for one in options(small) if one.drafter is None and one.targets == 1)
    assert tried(small, plain).option.tokens_per_s == pytest.approx(plain.tokens_per_s, rel=0.1)


def test_the_command_names_the_best_way_and_where_it_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table and for programs. What was simulated for programs is not simulated again for the table."""
    known: dict[str, Tried] = {}

    def tried_once(asked: PlanRequest, option: Option) -> Tried:
        key = repr((asked, option))
        if key not in known:
            known[key] = tried(asked, option)
        return known[key]

    monkeypatch.setattr(planner, "tried", tried_once)
    file = tmp_path / "plan.yaml"
    file.write_text(
        "target: {profile: 25ms+20us}\n"
        "drafters: [{name: near, profile: 1.5ms+5us, agrees: 85, usd_per_gpu_hour: 0.1}]\n"
        "traffic: {requests: 1, tokens: 16, prompt: 8}\n"
        "nodes: [8]\n"
    )
    done = CliRunner().invoke(app, ["plan", str(file), "--trials", "1", "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout.strip().splitlines()[-1])
    assert "virtual time" in made["emulated"]
    assert made["best"]["drafter"] == "near"
    assert made["best"]["speed_up"] > 1.3
    assert made["loads"][0]["pays"]
    done = CliRunner().invoke(app, ["plan", str(file), "--trials", "1"])
    assert "near, 8 nodes" in done.stdout
    assert "emulated" in done.stdout


def test_where_nothing_has_a_price_the_fastest_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter that costs nothing is used."""
    monkeypatch.setattr(planner, "tried", lambda _, option: Tried(option=option, expected=1.0))
    free = request(
        target={**TARGET, "usd_per_gpu_hour": 0.0}, drafters=[{**NEAR, "usd_per_gpu_hour": 0.0}]
    )
    made = planner.plan(free.model_copy(update={"nodes": (8,)}), trials=1)
    assert made.best is not None
    assert made.best.option.drafter is not None


def test_more_is_tried_until_something_is_fast_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where targets cannot share a drafter after all, the way in which each has its own is found, although others seemed cheaper."""

    def half_if_shared(_: PlanRequest, option: Option) -> Tried:
        reached = 1.0 if option.drafters == 2 else 0.5
        slower = replace(option, tokens_per_s=reached * option.tokens_per_s)
        return Tried(option=slower, expected=option.speed_up)

    monkeypatch.setattr(planner, "tried", half_if_shared)
    asked = {"requests": 4, "tokens": 64}
    least = best(request(traffic=asked)).tokens_per_s / 4
    made = planner.plan(request(traffic={**asked, "tokens_per_s": 0.9 * least}), trials=1)
    assert made.best is not None
    assert (made.best.option.targets, made.best.option.drafters) == (2, 2)


def test_plain_decoding_that_is_fast_enough_is_always_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not only the cheapest: with one target it may be too slow, and a way with drafters must not be dearer than with two."""
    monkeypatch.setattr(planner, "tried", lambda _, option: Tried(option=option, expected=1.0))
    slow = {**TARGET, "profile": "10ms+5ms"}
    traffic = {"requests": 4, "tokens": 64, "prompt": 1, "tokens_per_s": 40.0}
    asked = request(target=slow, traffic=traffic)
    made = planner.plan(asked, trials=1)
    assert made.best is not None
    ways = [(one.option.name, one.option.targets) for one in (made.best, *made.others)]
    assert ("plain", 2) in ways


def test_plain_decoding_is_tried_until_it_is_fast_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a drafter is recommended that was seen to be slower than plain decoding on as many targets, where the closed form thought
    that fewer targets would do."""

    def slower(_: PlanRequest, option: Option) -> Tried:
        gained = option.speed_up if option.drafter is None else option.speed_up / 0.95
        found = replace(option, tokens_per_s=0.9 * option.tokens_per_s / gained)
        return Tried(option=found, expected=option.speed_up)

    monkeypatch.setattr(planner, "tried", slower)
    target = {"profile": "10ms+1ms", "usd_per_gpu_hour": 3.0}
    traffic = {"requests": 4, "tokens": 64}
    drafters = [{**NEAR, "usd_per_gpu_hour": 0.01}]
    plain = next(options(request(target=target, traffic=traffic)))
    least = 0.95 * plain.tokens_per_s / 4
    asked = request(
        target=target, traffic={**traffic, "tokens_per_s": least}, drafters=drafters, nodes=[8]
    )
    made = planner.plan(asked, trials=1)
    assert made.best is not None
    assert (made.best.option.name, made.best.option.targets) == ("plain", 2)
    assert any(one.option.drafter is not None for one in made.others)


def test_a_trial_of_the_slowest_target_is_a_scenario() -> None:
    """Two texts of it would take longer than a scenario may be."""
    slow = request(target={"profile": "59000ms"}, traffic={"requests": 1, "tokens": 2000})
    assert scenario(slow, next(iter(options(slow)))).seconds == 86_400


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("drafters: [{name: a, profile: h100-1b, agrees: 99}]", "drafters[0].agrees"),
        (
            "drafters: [{name: a, profile: h100-1b, agrees: 70}, {name: a, profile: l4-1b, agrees: 70}]",
            "two drafters are called 'a'",
        ),
        ("drafters: [{name: plain, profile: h100-1b, agrees: 70}]", "'plain' is the way without"),
        ("traffic: {prompt: 9000}", "may be 8192 together"),
        ("nodes: [257]", "nodes[0]"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path: Path, change: str, says: str) -> None:
    """Before anything runs, and once."""
    file = tmp_path / "plan.yaml"
    lines = {
        "target": "target: {profile: h100-8b}",
        "drafters": "drafters: [{name: a, profile: h100-1b, agrees: 70}]",
        change.split(":")[0]: change,
    }
    file.write_text("\n".join(lines.values()))
    done = CliRunner().invoke(app, ["plan", str(file)])
    assert done.exit_code == 2
    assert "1 problem\n" in done.output
    assert says in done.output
