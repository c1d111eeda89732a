"""The bounds of trying again."""

from __future__ import annotations

import pytest

from outrider.client.connection.retry import RetryPolicy


def test_other_addresses_are_tried_at_once() -> None:
    """Only after a whole round of addresses is there a wait, and it doubles up to its bound."""
    policy = RetryPolicy(initial_backoff_s=0.1, max_backoff_s=0.5)
    waits = [policy.delay_s(n, num_addresses=2, jitter=1.0) for n in range(1, 11)]
    assert waits == pytest.approx([0, 0.1, 0, 0.2, 0, 0.4, 0, 0.5, 0, 0.5])


def test_jitter_spreads_over_the_upper_half() -> None:
    """The wait is between half and all of its length."""
    policy = RetryPolicy(initial_backoff_s=0.1)
    assert policy.delay_s(1, num_addresses=1, jitter=0.0) == pytest.approx(0.05)
    assert policy.delay_s(10**6, num_addresses=1, jitter=0.999) <= policy.max_backoff_s


def test_advice_is_the_least_wait() -> None:
    """Who was told to wait waits as long, and up to half as long again; own pauses grow beyond the advice."""
    policy = RetryPolicy(initial_backoff_s=0.1, max_backoff_s=5.0)
    assert policy.wait_s(1, jitter=0.0, advised_s=1.0) == pytest.approx(1.0)
    assert policy.wait_s(1, jitter=0.999, advised_s=1.0) == pytest.approx(1.5, abs=0.01)
    assert policy.wait_s(6, jitter=0.0, advised_s=1.0) == pytest.approx(3.2)
    assert policy.wait_s(10**6, jitter=0.0, advised_s=60.0) == pytest.approx(60.0)
    assert policy.delay_s(1, num_addresses=1, jitter=0.5, advised_s=2.0) == pytest.approx(2.0)
    assert policy.delay_s(1, num_addresses=2, jitter=0.5, advised_s=2.0) == 0.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"open_attempts": 0},
        {"patience_s": float("inf")},
        {"patience_s": -1.0},
        {"initial_backoff_s": -1.0},
        {"max_backoff_s": float("nan")},
    ],
)
def test_unbounded_policies_are_refused(arguments: dict[str, float]) -> None:
    """No policy can try forever."""
    with pytest.raises(ValueError, match=next(iter(arguments))):
        RetryPolicy(**arguments)  # type: ignore[arg-type]  # one argument of either type
