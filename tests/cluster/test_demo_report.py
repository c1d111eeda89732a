"""The figures of the demonstration."""

from __future__ import annotations

import pytest

from outrider.client.messages.results import (
    Completion,
    FinishReason,
    Origin,
    SpeculationStats,
    Timing,
    Token,
)
from outrider.cluster.demo.demo_report import (
    Decoded,
    Pair,
    origins,
    pass_bars,
    share_bar,
    time_shares,
    totals,
)


def decoded(ids: tuple[int, ...], *, total_s: float, ties: int = 0) -> Decoded:
    """One text; its first token is the target's own, the others were drafted."""
    tokens = tuple(
        Token(
            id=token_id,
            origin=Origin.DRAFTER if place else Origin.TARGET,
            drafter="d" if place else None,
        )
        for place, token_id in enumerate(ids)
    )
    stats = SpeculationStats(
        rounds=2,
        verified=8,
        accepted=4,
        reached_by_depth=(2, 2),
        accepted_by_depth=(2, 1),
        mean_tokens_per_pass=1.5,
        near_ties=ties,
    )
    timing = Timing(prefill_s=total_s / 4, verify_s=total_s / 2, total_s=total_s)
    return Decoded(
        text="",
        tokens=tokens,
        passes=(len(ids),),
        completion=Completion(
            index=0, finish_reason=FinishReason.LENGTH, speculation=stats, timing=timing
        ),
        start_us=0.0,
        duration_us=total_s * 1e6,
    )


def pair(fast: Decoded, *, temperature: float = 0.0) -> Pair:
    """A pair whose plain text is 1, 2, 3 in one second."""
    return Pair(
        category="c",
        prompt="p",
        temperature=temperature,
        seed=0,
        plain=decoded((1, 2, 3), total_s=1.0),
        speculative=fast,
    )


def test_equal_pair() -> None:
    """Equal outputs have no first difference; the speed-up is that of the rates."""
    same = pair(decoded((1, 2, 3), total_s=0.5))
    assert same.first_difference is None
    assert not same.is_unexplained
    assert same.speed_up == pytest.approx(2.0)


def test_difference_with_and_without_a_near_tie() -> None:
    """Only a difference that no near tie explains is unexplained."""
    plain = pair(decoded((1, 9, 3), total_s=0.5))
    tied = pair(decoded((1, 9, 3), total_s=0.5, ties=1))
    assert (plain.first_difference, plain.is_unexplained) == (1, True)
    assert (tied.first_difference, tied.is_unexplained) == (1, False)


def test_totals_by_temperature() -> None:
    """Only the pairs of that temperature count, or all."""
    pairs = [
        pair(decoded((1, 2, 3), total_s=0.5)),
        pair(decoded((1, 2), total_s=0.25), temperature=0.8),
    ]
    hot = totals(pairs, temperature=0.8)
    assert (hot.texts, hot.equal, hot.tokens) == (1, 0, 2)
    every = totals(pairs)
    assert (every.texts, every.equal, every.tokens) == (2, 1, 5)
    assert every.plain_tokens_per_s == pytest.approx(3.0)
    assert every.speculative_tokens_per_s == pytest.approx(5 / 0.75)
    assert every.mean_tokens_per_pass == pytest.approx(1.5)
    assert every.acceptance == pytest.approx(0.5)
    assert every.acceptance_by_depth == pytest.approx((1.0, 0.5))


def test_time_shares_make_a_whole() -> None:
    """What the service does not name is elsewhere."""
    shares = time_shares([decoded((1,), total_s=2.0)])
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["elsewhere"] == pytest.approx(0.25)
    assert sum(time_shares([]).values()) == 0.0


def test_origins_are_counted_by_name() -> None:
    """The target and each drafter."""
    assert origins([decoded((1, 2, 3), total_s=1.0)]) == {"target": 1, "d": 2}


def test_bars() -> None:
    """One bar a pass, and bars that fill their width."""
    assert pass_bars((1, 8, 50, 0)) == "▁██"
    assert share_bar(0.5, 4) == "██··"
    assert share_bar(7.0, 2) == "██"
