"""The floor of what is sent follows what a committed token has cost."""

from __future__ import annotations

import math

import pytest
from tests.actors.draft.bench import DRAFT_TABLE, TARGET_TABLE, MiniTarget, TableBench, make_attach

from outrider.actors.draft.events import LinkLost
from outrider.actors.draft.settings import DraftSettings
from outrider.actors.draft.thrift import BEGINNING, LEAST, Thrift

TOKEN = 5000
"""Takes two bytes."""


def test_floor_falls_where_tokens_are_cheap_and_rises_where_they_are_dear() -> None:
    thrift = Thrift(200.0)
    assert LEAST < thrift.share < 1.0
    for _ in range(200):
        thrift.sent([TOKEN] * 300)
        thrift.committed(3)
    assert thrift.share == 1.0
    for _ in range(200):
        thrift.sent([TOKEN] * 3)
        thrift.committed(3)
    assert thrift.share == LEAST


@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_what_is_spent_settles_at_what_is_wanted(tokens: int) -> None:
    """Of a drafter that has the more to send the lower the floor is."""
    thrift = Thrift(200.0)
    spent: list[float] = []
    for _ in range(4000):
        num_nodes = round(20 * tokens / thrift.share)
        thrift.sent([TOKEN] * num_nodes)
        thrift.committed(tokens)
        spent.append((4 * num_nodes + 96) / tokens)
    late = spent[-1000:]
    assert LEAST < thrift.share < 1.0
    assert sum(late) / len(late) == pytest.approx(200.0, rel=0.05)


def test_what_was_sent_in_vain_is_soon_forgotten() -> None:
    """A target that was away for long says little of what the next tokens cost."""
    thrift = Thrift(200.0)
    for _ in range(10_000):
        thrift.sent([TOKEN] * 128)
    assert thrift.share == BEGINNING
    thrift.committed(1)
    assert thrift.share < 1.1 * BEGINNING
    for _ in range(100):
        thrift.committed(4)
    assert thrift.share == LEAST


def test_verdicts_without_tokens_say_nothing() -> None:
    thrift = Thrift(200.0)
    thrift.sent([TOKEN] * 1000)
    thrift.committed(0)
    assert thrift.share == BEGINNING


def num_sent(bytes_per_token: float, *, lockstep: bool = False) -> int:
    """Nodes that a drafter sends until it has seen eighty verdicts."""
    attach = make_attach()
    bench = TableBench(DRAFT_TABLE, bytes_per_token=bytes_per_token, lockstep=lockstep)
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    nodes = 0
    for _ in range(80):
        bench.settle()
        nodes += sum(len(news.tree.tokens) for news in bench.take_news())
        bench.worker.post(target.commit(2))
    return nodes


def test_a_drafter_that_may_spend_more_sends_more() -> None:
    assert num_sent(1e6) > 1.3 * num_sent(1.0)


def test_lockstep_sends_whole_trees_whatever_they_cost() -> None:
    assert num_sent(1e6, lockstep=True) == num_sent(1.0, lockstep=True)


def test_each_target_has_its_own_floor() -> None:
    """What a far target costs does not keep candidates from a near one, and a lost link is forgotten."""
    bench = TableBench(DRAFT_TABLE, bytes_per_token=1.0)
    far, near = make_attach(link=1), make_attach(link=2)
    target = MiniTarget(TARGET_TABLE, far)
    bench.worker.post(far)
    bench.worker.post(near)
    for _ in range(80):
        bench.settle()
        bench.worker.post(target.commit(2))
    sessions = bench.worker.sessions
    spent, fresh = sessions[far.key].thrift, sessions[near.key].thrift
    assert spent is not None
    assert fresh is not None
    assert spent.share > 1.2 * BEGINNING
    assert fresh.share == BEGINNING
    bench.worker.post(LinkLost(link=1))
    bench.worker.post(far)
    bench.settle()
    again = sessions[far.key].thrift
    assert again is not None
    assert again.share == BEGINNING


@pytest.mark.parametrize("wanted", [0.0, -1.0, math.nan])
def test_what_may_be_spent_must_be_positive(wanted: float) -> None:
    with pytest.raises(ValueError, match="bytes_per_token is"):
        DraftSettings(name="d", incarnation=1, method="prompt_lookup", bytes_per_token=wanted)
