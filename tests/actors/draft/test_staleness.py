"""What drafters learn about delay, and what they spare because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    MiniTarget,
    TableBench,
    make_attach,
)

from outrider.actors.draft.staleness import Staleness
from outrider.actors.draft.tree import ROOT, DraftTree

PASS_S = 0.01


def learn(delay: Staleness, seconds: float, *, starving: bool, verdicts: int = 1) -> None:
    """Verdicts come a pass apart; the first candidate below each base was sent so long ago."""
    for _ in range(verdicts):
        now = (delay._last_s or 0.0) + PASS_S
        delay.observe(now, pass_s=PASS_S, starving=starving, sent_s=now - seconds)


def test_nothing_is_spared_before_anything_is_known() -> None:
    """A target that was never heard of is near, and so is one that answers within a pass."""
    delay = Staleness()
    assert delay.passed == 0
    learn(delay, 2.5 * PASS_S, starving=True)
    assert delay.passed == 0
    assert delay.discount(0) < delay.discount(1) == 1.0


def test_candidates_on_their_way_show_how_far_the_target_is() -> None:
    """Starving although something was sent so long ago: at least so long, but for the pass that was running."""
    delay = Staleness()
    learn(delay, 6.5 * PASS_S, starving=True)
    assert delay.passed == 4
    learn(delay, 2.0 * PASS_S, starving=True)
    assert delay.passed == 4
    assert delay.discount(5) == 1.0
    assert delay.discount(1) < delay.discount(4) < 1.0


def test_candidates_that_arrived_show_that_it_is_nearer() -> None:
    """A verdict that knows of them bounds the exchange from above."""
    delay = Staleness()
    learn(delay, 8.5 * PASS_S, starving=True)
    learn(delay, 3.5 * PASS_S, starving=False)
    assert delay.passed == 1


def test_a_delay_is_forgotten() -> None:
    """Otherwise a drafter that sends nothing would never find out that the way has become short."""
    delay = Staleness()
    learn(delay, 20.0 * PASS_S, starving=True)
    for _ in range(200):
        delay.observe(delay._last_s + PASS_S, pass_s=PASS_S, starving=True, sent_s=None)  # type: ignore[operator]
    assert delay.passed == 0


@pytest.mark.parametrize("passed", [0, 1, 2, 3])
def test_passed_nodes_are_sent_as_ancestors_only(passed: int) -> None:
    """What is sent ends below what the target will have committed, and nothing of its way there is missing."""
    tree = DraftTree()
    node = ROOT
    for depth in range(3):
        first = tree.add(node, 10 + depth, 0.6, (1,))
        tree.add(node, 20 + depth, 0.3, (2,))
        node = first
    news = tree.take_news(64, passed=passed, now=1.0)
    if passed == 3:
        assert news is None
        assert tree.first_sent_s is None
        return
    assert news is not None
    assert {12, 22} <= set(news.tokens)
    assert {10, 11, 12} <= set(news.tokens)
    assert {20 + depth for depth in range(passed)}.isdisjoint(news.tokens)
    assert tree.first_sent_s == 1.0


def test_when_a_node_was_first_sent_is_kept() -> None:
    """Sending it again, or another root, does not make it younger."""
    tree = DraftTree()
    top = tree.add(ROOT, 1, 0.5, (1,))
    tree.add(top, 2, 0.5, (1,))
    tree.take_news(8, now=1.0)
    tree.unsend()
    tree.take_news(8, now=2.0)
    tree.reroot(top)
    assert tree.first_sent_s == 1.0


def test_a_drafter_that_is_too_far_away_rests_and_tries_again() -> None:
    """Nothing is run or sent while everything would be passed on arrival; the text is followed all the same."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    session = bench.worker.sessions[attach.key]
    session.staleness.observe(0.0, pass_s=1e-3, starving=False, sent_s=None)
    session.staleness.observe(1e-3, pass_s=1e-3, starving=True, sent_s=-1.0)
    sent = bench.worker.stats.nodes
    bench.worker.post(replace(target.commit(1), starving=True, pass_s=1e-3))
    bench.settle()
    assert session.length == len(target.tokens)
    assert bench.worker.stats.nodes == sent
    session.staleness.exchange_s = 0.0
    bench.worker.post(target.commit(1))
    bench.settle()
    assert bench.worker.stats.nodes > sent
