"""The planner: what can be tried and what cannot, memory, short texts, and that words follow what was tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.actors.engine.profiles import Roofline, find_profile
from outrider.client.cli.app import app
from outrider.cluster.config.config_actors import MAX_SLOTS
from outrider.cluster.plan.plan_command import lines_of, make_plan, told
from outrider.cluster.plan.plan_request import PlanRequest
from outrider.cluster.plan.planner import Plan, where_it_pays
from outrider.cluster.plan.serving_ways import Option, all_plain_rate, options
from outrider.cluster.plan.trial import Tried, tried

NEAR = {"name": "near", "profile": "1ms+3us", "agrees": 70}


def request(**changes: Any) -> PlanRequest:
    """A small plan."""
    given = {
        "target": {"profile": "10ms+10us"},
        "drafters": [NEAR],
        "traffic": {"requests": 1, "tokens": 16, "prompt": 8},
        "nodes": [4],
    }
    return PlanRequest.model_validate({**given, **changes})


def drafting(of: PlanRequest) -> Option:
    """One target with a drafter."""
    return next(one for one in options(of) if one.drafter is not None and one.targets == 1)


def plan_of(of: PlanRequest, *ways: tuple[Option, float]) -> Plan:
    """A plan in which these were tried at these prices, the cheapest first."""
    found = [
        Tried(
            option=replace(way, usd_per_s=usd * way.tokens_per_s / 1e6),
            expected=way.speed_up,
        )
        for way, usd in ways
    ]
    return Plan(best=found[0], others=tuple(found[1:]), loads=tuple(where_it_pays(of)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("target: {profile: 10ms, slots: 1000000}\n", f"less than or equal to {MAX_SLOTS}"),
        (
            "target: {profile: 1ms+60s}\ntraffic: {requests: 1, tokens: 16, prompt: 4000}\n",
            "a prompt of 4000 tokens takes 1ms+60s 66.7 hours; it may take 3",
        ),
        (
            "target: {profile: h100x8-70b}\ngpus: 4\n",
            "one target takes 8 GPUs and 4 are allowed",
        ),
        (
            "target: {profile: h100x8-70b, gpus: 2}\n",
            "target: gpus is 2, but h100x8-70b takes 8; leave gpus out",
        ),
        (
            "target: {profile: l4-8b}\ntraffic: {requests: 64, tokens: 200, prompt: 3800}\ngpus: 3\n",
            "64 requests need 4 targets, since one holds 17 of them; these take 4 GPUs and 3 are",
        ),
    ],
)
def test_what_cannot_be_tried_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """In a sentence, as a mistake in the file."""
    file = tmp_path / "plan.yaml"
    file.write_text(text + "drafters: [{name: d, profile: 1ms+3us, agrees: 70}]\n")
    done = CliRunner().invoke(app, ["plan", str(file)])
    assert done.exit_code == 2, done.output
    assert "1 problem\n" in done.output
    assert says in done.output


@pytest.mark.parametrize(
    ("target", "traffic"),
    [
        # Processors take longer than passes.
        ("0.001ns", {"requests": 1, "tokens": 16, "prompt": 8}),
        # The prompts alone take longer than 300 passes.
        ("1ms+1ms", {"requests": 2, "tokens": 4, "prompt": 2000}),
    ],
)
def test_a_trial_is_long_enough_for_answers(target: str, traffic: dict[str, int]) -> None:
    """Something comes after the part that is not counted."""
    asked = request(target={"profile": target}, traffic=traffic)
    found = tried(asked, drafting(asked)).option
    assert found.tokens_per_s > 0.0
    assert found.speed_up > 0.5


def test_a_million_requests_are_spread_over_targets() -> None:
    """Each gets no more than a scenario may hold."""
    asked = request(traffic={"requests": 1_000_000, "tokens": 16, "prompt": 8})
    assert all(one.sessions <= MAX_SLOTS for one in options(asked))


def test_only_requests_that_there_are_count() -> None:
    """Of five requests some of four targets have two, and the others one: their rate is that of five, and not of eight."""
    asked = request(traffic={"requests": 5, "tokens": 16, "prompt": 8})
    every = list(options(asked))
    assert {one.targets * one.sessions for one in every} == {5, 6, 8}
    for one in every:
        small = request(traffic={"requests": one.sessions, "tokens": 16, "prompt": 8})
        alone = plain(small).tokens_per_s / one.sessions
        assert one.tokens_per_s / 5 == pytest.approx(one.speed_up * alone)
    four = next(one for one in every if one.targets == 4)
    assert tried(asked, four).option.tokens_per_s == pytest.approx(four.tokens_per_s, rel=0.1)


def test_a_fleet_decodes_all_its_requests_plainly() -> None:
    """Five targets have 16 requests, 3.2 each: they are not taken for three."""
    fleet, three = (
        request(traffic={"requests": requests, "tokens": 16, "prompt": 8}) for requests in (16, 3)
    )
    assert all_plain_rate(fleet, 5) / 16 == pytest.approx(plain(three).tokens_per_s / 3, rel=0.01)


def test_memory_limits_the_requests_of_a_device() -> None:
    """(24 GB - 15.01 GB) / (4,000 x 131,072 B) = 17.1 requests of an 8 B model on an L4."""
    profile = find_profile("l4-8b")
    assert isinstance(profile, Roofline)
    assert profile.sessions_that_fit(4000) == 17
    asked = request(
        target={"profile": "l4-8b"}, traffic={"requests": 64, "tokens": 200, "prompt": 3800}
    )
    assert max(one.sessions for one in options(asked)) == 16
    assert max(point.sessions for point in where_it_pays(asked)) == 16
    lines = lines_of(asked, plan_of(asked, (drafting_of_four(asked), 1.0), (plain(asked), 2.0)))
    assert lines[0].startswith(
        "the memory of l4-8b (target) has room for 17 requests of 3800 + 200"
    )


def drafting_of_four(of: PlanRequest) -> Option:
    """Four targets with a drafter."""
    return next(one for one in options(of) if one.drafter is not None and one.targets == 4)


def plain(of: PlanRequest) -> Option:
    """The first way without a drafter."""
    return next(one for one in options(of) if one.drafter is None)


def test_memory_limits_the_requests_of_a_drafter() -> None:
    """Ways in which one drafter would hold more are left out."""
    traffic = {"requests": 64, "tokens": 192, "prompt": 8000}
    given = {"drafters": [{**NEAR, "profile": "l4-1b"}], "traffic": traffic}
    asked = request(**given)
    assert asked.drafter_sessions(asked.drafters[0]) == 80
    shared = [one.sessions * one.shared_by for one in options(asked) if one.drafter is not None]
    assert max(shared) <= 80


def test_of_measured_figures_the_memory_is_not_known() -> None:
    """So slots count."""
    assert request(traffic={"requests": 64, "tokens": 192, "prompt": 8000}).target_sessions == 256


@pytest.mark.parametrize("tokens", [1, 2])
def test_one_or_two_tokens_are_not_faster_with_a_drafter(tokens: int) -> None:
    """The first comes with the prompt, the second with the next pass."""
    asked = request(traffic={"requests": 4, "tokens": tokens, "prompt": 8})
    assert drafting(asked).speed_up == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("tokens", "prompt", "agrees", "nodes", "simulated"),
    [(4, 8, 70, 4, 1.36), (8, 8, 70, 4, 1.52), (20, 100, 85, 8, 2.55), (128, 8, 70, 4, 2.04)],
)
def test_short_texts_gain_less(
    tokens: int, prompt: int, agrees: int, nodes: int, simulated: float
) -> None:
    """As in virtual time."""
    asked = request(
        traffic={"requests": 4, "tokens": tokens, "prompt": prompt},
        drafters=[{**NEAR, "agrees": agrees}],
        nodes=[nodes],
    )
    assert drafting(asked).speed_up == pytest.approx(simulated, rel=0.1)


def test_words_follow_what_was_tried() -> None:
    """The closed form's are marked, and virtual time counts."""
    dear = request(drafters=[{**NEAR, "usd_per_gpu_hour": 100.0}])
    paid, *_, closed = lines_of(dear, plan_of(dear, (drafting(dear), 1.0), (plain(dear), 2.0)))
    assert paid.startswith("in virtual time a drafter pays: 1 target, 1 x near, 4 nodes")
    assert closed.startswith("by the closed form alone")
    assert "at no load of a target" in closed
    assert closed.endswith("where virtual time says otherwise, that counts")

    cheap = request(drafters=[{**NEAR, "usd_per_gpu_hour": 0.0}])
    paid, closed = lines_of(cheap, plan_of(cheap, (plain(cheap), 1.0), (drafting(cheap), 2.0)))
    assert paid.startswith("in virtual time no way with a drafter that was tried is cheaper")
    assert "pays at every load of a target up to 256" in closed
    assert closed.startswith("by the closed form alone")


def test_what_is_too_slow_does_not_pay() -> None:
    """A way with a drafter that is cheaper than plain decoding, but too slow where plain decoding is fast enough, and the other way round."""
    of = request(traffic={"requests": 1, "tokens": 16, "prompt": 8, "tokens_per_s": 90})
    plain, fast = next(iter(options(of))), drafting(of)
    made = plan_of(
        of, (replace(plain, tokens_per_s=95.0), 2.0), (replace(fast, tokens_per_s=80.0), 1.0)
    )
    says = " ".join(lines_of(of, made))
    assert "no way with a drafter that was tried is fast enough" in says
    made = plan_of(
        of, (replace(fast, tokens_per_s=95.0), 2.0), (replace(plain, tokens_per_s=80.0), 1.0)
    )
    assert "only ways with a drafter are fast enough" in " ".join(lines_of(of, made))


def test_without_prices_nothing_is_said_of_paying() -> None:
    """All cost the same."""
    free = request(
        target={"profile": "10ms+10us", "usd_per_gpu_hour": 0.0},
        drafters=[{**NEAR, "usd_per_gpu_hour": 0.0}],
    )
    lines = lines_of(free, plan_of(free, (drafting(free), 0.0), (plain(free), 0.0)))
    assert lines == ["nothing has a price, so the fastest way comes first"]


def test_a_way_that_delivers_nothing_has_no_price_for_programs(tmp_path: Path) -> None:
    """JSON has no infinity."""
    file = tmp_path / "plan.yaml"
    file.write_text(
        "target: {profile: 10ms}\ndrafters: [{name: d, profile: 1ms, agrees: 70}]\n"
        "traffic: {requests: 1, tokens: 4, prompt: 4}\nnodes: [2]\n"
    )
    _, made = make_plan(file, trials=1, tell=lambda line: None)
    assert made.best is not None
    nothing = replace(made.best.option, tokens_per_s=0.0)
    shown = told(Plan(best=Tried(option=nothing, expected=1.0), others=(), loads=()))
    assert shown["best"]["usd_per_million_tokens"] is None
