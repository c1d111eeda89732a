"""News for a far target gather between messages; nothing is kept back for good."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.actors.draft.bench import DRAFT_TABLE, TARGET_TABLE, MiniTarget, TableBench, make_attach

from outrider.actors.draft.events import SessionNews
from outrider.actors.draft.intake import HOLD_SHARE, PASS_GAP_SHARE
from outrider.actors.draft.session import GAP_SHARE

STEPS = 40
"""Units of work, a millisecond each."""


def drafted(
    round_trip_s: float, *, starving: bool = False, pass_s: float = 0.0, wait_s: float = 0.0
) -> tuple[list[SessionNews], set[int]]:
    """What a drafter sends after a verdict in `STEPS` milliseconds and then until it is at rest; when it sent, in them."""
    attach = replace(make_attach(), round_trip_s=round_trip_s)
    bench = TableBench(DRAFT_TABLE, width=1, expand=1, max_ahead=512, max_scratch=512)
    target = MiniTarget(TARGET_TABLE, attach)
    target.credits = 512
    bench.worker.post(attach)
    bench.step(2)
    bench.take()
    verdict = target.commit(1, starving=starving)
    bench.worker.post(replace(verdict, pass_s=pass_s, wait_s=wait_s))
    news: list[SessionNews] = []
    when: set[int] = set()
    for step in range(STEPS):
        bench.step()
        fresh = bench.take_news()
        news += fresh
        when |= {step} if fresh else set()
    bench.settle()
    return news + bench.take_news(), when


def paths(news: list[SessionNews]) -> set[tuple[int, ...]]:
    """The tokens from the base to each node, of all messages together."""
    found: set[tuple[int, ...]] = set()
    for one in news:
        here: list[tuple[int, ...]] = []
        for token, parent in zip(one.tree.tokens, one.tree.parents, strict=True):
            here.append((*(here[parent - 1] if parent else ()), token))
        found |= set(here)
    return found


def test_a_far_target_gets_the_same_in_fewer_messages() -> None:
    """Messages that are not urgent are an eighth of a round trip apart; the tree is the same in the end."""
    near, near_when = drafted(0.0)
    far, far_when = drafted(0.04)
    assert paths(near) == paths(far)
    assert len(paths(far)) > 10
    assert len(near_when) > 2 * len(far_when)
    # The last message goes out when there is nothing left to draft.
    times = sorted(far_when)[:-1]
    assert len(times) > 2
    gap_ms = 1e3 * GAP_SHARE * 0.04
    assert all(later - earlier >= gap_ms - 1 for earlier, later in pairwise(times))


def test_messages_are_a_part_of_a_slow_pass_apart() -> None:
    """They are of no use before the pass is over, and each takes time from it; the tree is the same in the end."""
    fast, fast_when = drafted(0.0)
    slow, slow_when = drafted(0.0, pass_s=0.01)
    assert paths(fast) == paths(slow)
    assert len(fast_when) > 2 * len(slow_when)
    times = sorted(slow_when)[:-1]
    assert times[0] >= 1e3 * HOLD_SHARE * 0.01 - 1
    assert all(
        later - earlier >= 1e3 * PASS_GAP_SHARE * 0.01 - 1 for earlier, later in pairwise(times)
    )


@pytest.mark.parametrize("round_trip_s", [0.0, 0.0005])
def test_a_near_target_hears_of_every_level(round_trip_s: float) -> None:
    """Where a draft pass takes longer than the gap, nothing waits."""
    news, when = drafted(round_trip_s)
    assert len(when) == len(paths(news))


def test_a_target_that_waits_gets_one_tree_that_has_grown() -> None:
    """In time, with several levels, and the rest gathers as for any target that is busy; the tree is the same in the end."""
    early, early_when = drafted(0.0, starving=True, pass_s=0.02)
    grown, grown_when = drafted(0.0, starving=True, pass_s=0.02, wait_s=0.01)
    assert paths(early) == paths(grown)
    assert min(early_when) <= 1
    assert 4 <= min(grown_when) <= 10
    deepest = max(len(path) for path in paths(grown[:1]))
    assert deepest >= 4 > max(len(path) for path in paths(early[:1]))
    later = sorted(grown_when)[1:]
    assert later[0] - min(grown_when) >= 1e3 * PASS_GAP_SHARE * 0.02 - 1


def test_a_tree_goes_out_early_enough_for_its_way() -> None:
    """What the way takes is taken from the time to grow; where nothing is left it goes out at once."""
    near = min(drafted(0.0, starving=True, pass_s=0.02, wait_s=0.004)[1])
    far = min(drafted(0.002, starving=True, pass_s=0.02, wait_s=0.004)[1])
    assert far <= near - 2
    assert min(drafted(0.02, starving=True, pass_s=0.02, wait_s=0.004)[1]) <= 1


def test_a_tree_that_cannot_grow_goes_out_at_once() -> None:
    """A wait is not used up when there is nothing to wait for."""
    attach = replace(make_attach(max_tokens=4))
    bench = TableBench(DRAFT_TABLE, width=1, expand=1)
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.step(2)
    bench.take()
    bench.worker.post(replace(target.commit(1, starving=True), pass_s=1.0, wait_s=0.9))
    bench.step(6)
    assert paths(bench.take_news())


def test_what_a_far_target_lacks_goes_out_at_once() -> None:
    """A starving target is not made to wait for the gap."""
    _, when = drafted(0.08, starving=True)
    assert min(when) <= 1
