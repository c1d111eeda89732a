"""The ideal of many requests at once."""

from __future__ import annotations

from typing import Any

import pytest

from bench.ideals.law import Replay
from bench.ideals.load_ideal import CrowdPasses, crowd_passes, load_efficiency
from bench.running.targets import BenchTarget
from outrider.client.timeline.timeline_model import WORK, Slice, Timeline

TARGET = BenchTarget(
    part="shipped", model="t", layers=20, curve=((1, 0.010), (16, 0.025), (64, 0.073))
)
DRAFT = BenchTarget(part="shipped", model="d", layers=2, curve=((1, 0.001), (64, 0.0073)))
HITS = ([True] * 4 + [False]) * 20


def plain(*, sessions: int, prompt_share: float = 0.0) -> CrowdPasses:
    """Passes that take half as long again in the service as alone."""
    seconds = 1.5 * TARGET.seconds(sessions) / sessions
    return CrowdPasses(
        plain_s=seconds, tree_s=2.0 * seconds, sessions=sessions, prompt_share=prompt_share
    )


def row(sessions: int, *, prompt_share: float = 0.0, speed_up: float = 1.0) -> dict[str, Any]:
    """A result row's part."""
    passes = plain(sessions=sessions, prompt_share=prompt_share)
    return load_efficiency(
        speed_up,
        concurrency=sessions,
        plain=passes,
        pipelined=passes,
        replayed=Replay(hits=tuple(HITS), tokens_per_pass={1: 1.8, 16: 3.5}),
        target=TARGET,
        draft=DRAFT,
    )


def made(name: str, us: float, **args: int) -> Slice:
    """A slice of a target's work."""
    return Slice(process="t", track=WORK, name=name, start_us=0.0, duration_us=us, args=args)


def test_the_best_tree_shrinks_as_requests_grow() -> None:
    """For one, sixteen candidates pay most; for 64 they cost more than they bring, and one each is best."""
    one, many = row(1), row(64)
    assert one["target_bound"] == pytest.approx(
        max(1.8 / (1 + 0.001 / 0.015), 3.5 / (1 + 0.016 / 0.015))
    )
    # Twice the rows take 64 ms more than the 109.5 of a plain pass in the service.
    assert many["target_bound"] == pytest.approx(1.8 / (1 + 0.064 / 0.1095))
    assert many["ideal"] < one["ideal"]


def test_candidates_that_do_not_pay_leave_plain_decoding() -> None:
    """The ideal is never below 1, so resting drafters reach it."""
    costly = BenchTarget(part="shipped", model="t", layers=20, curve=((1, 0.01), (64, 0.64)))
    passes = CrowdPasses(plain_s=0.01, tree_s=0.0, sessions=64.0, prompt_share=0.3)
    found = load_efficiency(
        0.99,
        concurrency=64,
        plain=passes,
        pipelined=passes,
        replayed=Replay(hits=tuple(HITS), tokens_per_pass={1: 1.8}),
        target=costly,
        draft=DRAFT,
    )
    assert found["ideal"] == pytest.approx(1.0)
    assert found["eta"] == pytest.approx(0.99)


def test_prompts_gain_nothing() -> None:
    """Half of the time in prompts: the ideal of the whole follows Amdahl."""
    whole, half = row(8), row(8, prompt_share=0.5)
    assert half["ideal"] == pytest.approx(1.0 / (0.5 + 0.5 / whole["ideal"]))


def test_passes_of_a_timeline() -> None:
    """Seconds a session; of passes with prompts only what their decoding rows do not explain is the prompts'."""
    found = crowd_passes(
        Timeline(
            slices=(
                made("verify", 40.0, sessions=4, nodes=0, committed=4),
                made("verify", 60.0, sessions=2, nodes=6, committed=5),
                made("prefill", 100.0, sessions=5, nodes=0, committed=4),
                made("prefill", 20.0, sessions=4, nodes=0, committed=4),
            )
        )
    )
    assert found.plain_s == pytest.approx(10e-6)
    assert found.tree_s == pytest.approx(30e-6)
    assert found.sessions == pytest.approx(3.0)
    assert found.prompt_share == pytest.approx(60.0 / 220.0)


def test_nothing_recorded() -> None:
    """Zeros, no division by them."""
    found = crowd_passes(Timeline())
    assert (found.plain_s, found.tree_s, found.prompt_share) == (0.0, 0.0, 0.0)
