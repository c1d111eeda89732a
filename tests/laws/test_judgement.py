"""The chi-square tests of rounds themselves: right on texts of the law, alert to texts that are a little off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.laws.coordinator import Text
from tests.laws.judgement import Judgement, judge
from tests.laws.modes import PROMPT, TARGET, VOCAB

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

TRANSITIONS = np.exp(TARGET.log_probs)
DEPTH = 2
SESSIONS = 600
STEPS = 120
"""Tokens of each session: some 40,000 rounds in all."""

Rows = Callable[[Int64s, Int64s], Float64s]
"""From the last three tokens of each session (S, 3) and their places in their rounds (S,) to rows to draw from (S, V)."""


def exact(last_S3: Int64s, places_S: Int64s) -> Float64s:
    """The law."""
    rows_SV: Float64s = TRANSITIONS[last_S3[:, 1], last_S3[:, 2]]
    return rows_SV


def warm(last_S3: Int64s, places_S: Int64s) -> Float64s:
    """Every token at a temperature of 1.15."""
    rows_SV: Float64s = exact(last_S3, places_S) ** (1 / 1.15)
    return rows_SV


def flat_later(last_S3: Int64s, places_S: Int64s) -> Float64s:
    """Tokens after the first of a round from flatter rows."""
    rows_SV = exact(last_S3, places_S)
    return np.where(places_S[:, None] == 0, rows_SV, 0.85 * rows_SV + 0.15 / VOCAB)


def stale_bonus(last_S3: Int64s, places_S: Int64s) -> Float64s:
    """The last token of a round from the row before."""
    stale_SV = TRANSITIONS[last_S3[:, 0], last_S3[:, 1]]
    return np.where(places_S[:, None] == DEPTH, stale_SV, exact(last_S3, places_S))


def judged(
    rows: Rows, seed: int, *, ends_early: bool = True, sessions: int = SESSIONS
) -> Judgement:
    """The tests of texts drawn so. Rounds have three tokens, or end early after token 0: a rule of the past."""
    rng = np.random.default_rng(seed)
    tokens_ST = np.tile(np.array(PROMPT), (sessions, 1))
    places_S = np.zeros(sessions, dtype=np.int64)
    starts_ST = np.zeros((sessions, len(PROMPT)), dtype=bool)
    for _ in range(STEPS):
        cumulative_SV = rows(tokens_ST[:, -3:], places_S).cumsum(axis=1)
        uniforms_S1 = rng.random((sessions, 1)) * cumulative_SV[:, -1:]
        drawn_S = (cumulative_SV <= uniforms_S1).sum(axis=1)
        starts_ST = np.column_stack([starts_ST, places_S == 0])
        tokens_ST = np.column_stack([tokens_ST, drawn_S])
        is_over_S = (places_S == DEPTH) | (ends_early & (drawn_S == 0))
        places_S = np.where(is_over_S, 0, places_S + 1)
    texts = [
        Text(tokens=tokens.tolist(), starts=np.flatnonzero(starts).tolist())
        for tokens, starts in zip(tokens_ST, starts_ST, strict=True)
    ]
    depth = None if ends_early else DEPTH
    return judge(texts, TARGET, window=DEPTH + 1, depth=depth)


def test_texts_of_the_law_pass() -> None:
    """Probabilities are spread over the unit interval, as those of a true hypothesis are."""
    found = [judged(exact, seed, sessions=SESSIONS // 4) for seed in range(30)]
    for name in ("first", "joint"):
        ordered = np.sort([getattr(one, name) for one in found])
        assert np.abs(ordered - (np.arange(30) + 0.5) / 30).max() < 0.35
        assert ordered[0] > 1e-4


def test_warm_texts_are_caught() -> None:
    """By the first tokens as well as by windows."""
    judgement = judged(warm, 1)
    assert judgement.first < 1e-7
    assert judgement.joint < 1e-7


def test_wrong_later_tokens_are_caught_by_windows_only() -> None:
    """A test of first tokens alone would not see them."""
    judgement = judged(flat_later, 2)
    assert judgement.first > 1e-3
    assert judgement.joint < 1e-7


@pytest.mark.parametrize(("rows", "is_right"), [(exact, True), (stale_bonus, False)])
def test_bonus_tokens_are_judged_apart(rows: Rows, is_right: bool) -> None:
    """After a whole path the row is that of the path's end, not that of the one before."""
    bonus = judged(rows, 3, ends_early=False).bonus
    assert bonus is not None
    assert bonus > 1e-3 if is_right else bonus < 1e-7


def test_impossible_tokens_are_caught() -> None:
    """A single one is enough."""
    log_probs = TARGET.log_probs.copy()
    with np.errstate(divide="ignore"):
        log_probs[0, 0] = np.log([0.0, 0.5, 0.5])
    table = replace(TARGET, log_probs=log_probs)
    text = Text(tokens=[*PROMPT, 0, 0, 0, 0, 1, 2], starts=[3, 4, 5, 6, 7, 8])
    assert judge([text], table, window=1, depth=None).first == 0.0
