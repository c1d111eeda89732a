"""Children that come from the target: its roots."""

from __future__ import annotations

from dataclasses import replace

from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    VOCAB_SIZE,
    MiniTarget,
    TableBench,
    make_attach,
)

from outrider.actors.draft.calibration import Scoring
from outrider.actors.draft.tree import NOT_RUN, ROOT


def test_roots_of_the_target_are_grown_below() -> None:
    """They become children of the text, whether the root's row was there already or had to be run first."""
    for count in (1, 9):
        bench, attach = TableBench(DRAFT_TABLE), make_attach()
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(attach)
        bench.settle()
        tree = bench.worker.sessions[attach.key].tree
        verdict = target.commit(count)
        likely = target.draw(target.tokens)
        roots = (likely, (likely + 1) % VOCAB_SIZE, (likely + 2) % VOCAB_SIZE)
        bench.worker.post(replace(verdict, roots=roots))
        bench.settle()
        assert {tree.child(ROOT, token) is not None for token in roots} == {True}
        features = [tree.features[node] for node in tree.top]
        assert any(feature[0] == Scoring.TARGET for feature in features)
        node = tree.child(ROOT, likely)
        assert node is not None
        assert tree.scratch[node] != NOT_RUN
        assert tree.children_of(node)


def test_roots_are_not_sent_back_but_carried_along() -> None:
    """The target has them; what grows below them names them as its parents."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    verdict = target.commit(1)
    tree = bench.worker.sessions[attach.key].tree
    bench.worker.post(replace(verdict, roots=tuple(range(6))))
    bench.worker._take_in(0.0)
    own = [node for node in tree.top if tree.features[node][0] == Scoring.TARGET]
    assert own
    assert all(tree.sent[node] for node in own)
    assert tree.num_sent == sum(number > 0 for number in tree.sent)


def test_stale_roots_are_forgotten() -> None:
    """The next verdict brings its own, or none."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.worker.post(replace(target.commit(2), roots=(1, 2)))
    bench.settle()
    assert list(bench.worker.sessions[attach.key].roots) == [1, 2]
    bench.worker.post(target.commit(1))
    bench.settle()
    assert not bench.worker.sessions[attach.key].roots
