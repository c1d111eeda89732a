"""When a dead actor is started again."""

from __future__ import annotations

from outrider.cluster.config.config_service import Restarts
from outrider.cluster.supervise.restart_policy import RestartCount

POLICY = Restarts(backoff_s=1.0, max_backoff_s=5.0, healthy_after_s=60.0)


def test_waits_double_up_to_the_bound_and_never_end() -> None:
    """An actor that dies again and again is started for ever, but ever less often."""
    count, waits = RestartCount(), []
    for _ in range(100):
        count = count.after_death(served_s=0.0, policy=POLICY)
        waits.append(count.wait_s(POLICY))

    assert waits == [1.0, 2.0, 4.0] + [5.0] * 97


def test_a_long_life_starts_the_count_anew() -> None:
    """An actor that dies once an hour is restarted for ever."""
    count = RestartCount(in_a_row=5).after_death(served_s=60.0, policy=POLICY)

    assert count == RestartCount(in_a_row=1)


def test_many_restarts_do_not_overflow() -> None:
    """The doubling is bounded before it is computed."""
    policy = Restarts()

    assert RestartCount(in_a_row=10**5).wait_s(policy) == policy.max_backoff_s
