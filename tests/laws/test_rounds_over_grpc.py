"""The law of the text over real gRPC: every mode, 100,000 rounds each (`make laws`), and mistakes that the same test must catch.

A target and two drafters serve in processes of their own, with tables for models; the test is their coordinator. Each mode
runs 32 sessions side by side at temperature 1. The target waits for its tree in each round; the drafters draft ahead.

Significance: of all the chi-square tests of this file together, one fails a correct service once in 100,000 runs
(`FAMILY_ERROR`, divided evenly). The target's seeds are fixed; the drafters' draws and the order of messages are not, on
purpose: they come from the operating system, as they do when serving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.laws import modes
from tests.laws.coordinator import Collected, collect
from tests.laws.judgement import Judgement, judge
from tests.laws.modes import MODES, Mode
from tests.laws.servers import ROUNDS, Addresses, running

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS

CONTROL_ROUNDS = max(ROUNDS, 20_000)
"""Within which a mistake must be seen; it takes a thousand or two, a slight one ten."""

WRONG_ROWS = "rows_of_another_temperature" if ROUNDS >= 20_000 else "rows_of_half_the_temperature"
"""A slight mistake where there is time for it."""

SESSIONS = 32
"""Side by side, so that passes are shared."""

FAMILY_ERROR = 1e-5
"""Probability that any test of this file fails a correct service."""

MIN_P = FAMILY_ERROR / (3 * len(MODES))
"""Three statistics a mode."""

TIMEOUT_S = 1800
"""Bound on one mode; seconds for 1,000 rounds, minutes for 100,000."""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """The servers."""
    folder = tmp_path_factory.mktemp("tables")
    with running(folder, modes.TARGET, modes.DRAFTS, num_slots=SESSIONS) as found:
        yield found


def run(
    addresses: Addresses, mode: Mode, num_rounds: int = ROUNDS, first_seed: int = 1
) -> Collected:
    """The texts of one mode."""
    return asyncio.run(
        collect(
            addresses,
            mode.speculation,
            prompt=modes.PROMPT,
            drafters=mode.drafters,
            num_sessions=SESSIONS,
            num_rounds=num_rounds,
            first_seed=first_seed,
        )
    )


def judged(collected: Collected, mode: Mode) -> Judgement:
    """What is to be said of them."""
    window = 3 if mode.depth is None else mode.depth + 1
    return judge(collected.texts, modes.TARGET, window=window, depth=mode.depth)


def test_every_verifier_is_among_the_modes() -> None:
    """And those that mix drafters have several."""
    lossless = {name for name, one in VERIFIERS.items() if one.is_lossless}
    mixing = {name for name in lossless if VERIFIERS[name].mixes_drafters} - {"exact_match"}
    assert {mode.verifier for mode in modes.MODES} == lossless
    assert mixing <= {mode.verifier for mode in modes.MODES if len(mode.drafters) > 1}


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_rounds_follow_the_law_of_the_target(addresses: Addresses, mode: Mode) -> None:
    """First token, whole window and bonus token of all rounds, with plenty of both verdicts among them."""
    collected = run(addresses, mode)
    judgement = judged(collected, mode)
    assert collected.num_rounds >= ROUNDS
    assert collected.accepted / collected.rounds > 0.2
    if mode.depth is not None:
        assert judgement.num_bonus > ROUNDS // 50
    if len(mode.drafters) > 1 and mode.depth is not None:
        # Most rounds tested the trees of both.
        assert collected.verified > 1.5 * mode.depth * collected.rounds
    assert judgement.least > MIN_P, judgement


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("mode", "wrong"),
    [
        (
            Mode(verifier="traversal", shape=modes.TREE),
            WRONG_ROWS,
        ),
        (Mode(verifier="speculative_sampling", shape=modes.CHAIN), "shared_uniforms"),
        (
            Mode(verifier="mcsd_without_replacement", shape=modes.TREE),
            "target_for_residual",
        ),
    ],
    ids=str,
)
def test_mistakes_in_a_server_are_caught(tmp_path: Path, mode: Mode, wrong: str) -> None:
    """Negative controls: a wrong row, a shared random number, a wrong rule; the same test, until it sees them."""
    collected = Collected()
    with running(
        tmp_path, modes.TARGET, modes.DRAFTS, num_slots=SESSIONS, wrong=wrong
    ) as addresses:
        while collected.num_rounds < CONTROL_ROUNDS:
            first_seed = 1 + len(collected.texts)
            collected.add(run(addresses, mode, 1_000, first_seed))
            if judged(collected, mode).least < MIN_P:
                return
    raise AssertionError(f"{wrong} was not seen in {collected.num_rounds} rounds")
