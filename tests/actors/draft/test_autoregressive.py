"""Drafting with a model: trees, rows and estimates, against a model that is a table."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    VOCAB_SIZE,
    MiniTarget,
    TableBench,
    make_attach,
)

from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import NOT_RUN, ROOT
from outrider.actors.engine.tabular import Table
from outrider.actors.speculation.noise import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation

WIDTH = 4


def likely_draws(table: Table, sampling: Sampling, text: Sequence[int]) -> list[int]:
    """The best tokens after a text under the shared noise."""
    scores_V = torch.from_numpy(table.log_probs_after(text)).to(torch.float32)
    if sampling.temperature > 0.0:
        noise_1V = GumbelNoise(VOCAB_SIZE, torch.device("cpu")).rows(sampling.seed, len(text), 1)
        scores_V = scores_V / sampling.temperature + noise_1V[0]
    return scores_V.topk(WIDTH).indices.tolist()


def check_tree(bench: TableBench, session: DraftSession, table: Table) -> None:
    """The whole state is what a drafter would have that computed everything from scratch."""
    tree = session.tree
    slot = bench.model_drafter._seats[session].slot
    run = [node for node in range(len(tree)) if tree.scratch[node] != NOT_RUN]
    assert bench.engine.scratch(slot) == len(run)
    assert sorted(tree.scratch[node] for node in run) == list(range(len(run)))
    if tree.is_expanded:
        assert bench.engine.cached(slot) == session.length
    texts = {ROOT: list(session.tokens)}
    for node, parent in enumerate(tree.parents):
        texts[node] = [*texts[parent], tree.tokens[node]]
        assert tree.values[node] == pytest.approx(
            tree.estimates[node] * (1.0 if parent == ROOT else tree.values[parent])
        )
    for node in [ROOT, *run] if tree.is_expanded else run:
        expected = likely_draws(table, session.sampling, texts[node])
        for child in tree.children_of(node):
            _, rank, _ = tree.features[child]
            assert tree.tokens[child] == expected[rank - 1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_perfect_drafter_foresees_every_draw(temperature: float) -> None:
    """With the target's own distributions the best child of the root is the target's draw, always."""
    bench, generator = TableBench(TARGET_TABLE), random.Random(1)
    attach = make_attach(temperature=temperature)
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    session = bench.worker.sessions[attach.key]
    for _ in range(40):
        assert session.tree.tokens[session.tree.top[0]] == target.draw(target.tokens)
        bench.worker.post(target.commit(generator.randint(1, 6)))
        bench.settle()
        assert session.tokens == target.tokens
    assert bench.worker.stats.foreseen > 0.9 * bench.worker.stats.committed


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_verdicts_leaves_the_state_of_a_fresh_start(seed: int) -> None:
    """Re-rooting, catching up and growing at any moment give the tree that a rebuild would give."""
    generator = random.Random(seed)
    bench = TableBench(DRAFT_TABLE, num_slots=2, max_scratch=40, prefill_chunk=7)
    attaches = [
        make_attach(handle=1, tokens=range(1, 20)),
        make_attach(handle=2, tokens=[3], temperature=0.0),
    ]
    targets = [MiniTarget(TARGET_TABLE, attach) for attach in attaches]
    for attach in attaches:
        bench.worker.post(attach)
    for _ in range(40):
        bench.step(generator.randint(0, 4))
        if generator.random() < 0.8:
            bench.worker.post(generator.choice(targets).commit(generator.choice([1, 1, 2, 3, 9])))
        for session in bench.worker.sessions.values():
            check_tree(bench, session, DRAFT_TABLE)
    bench.settle()
    for attach, target in zip(attaches, targets, strict=True):
        session = bench.worker.sessions[attach.key]
        assert session.tokens == target.tokens
        assert session.tree.is_expanded
        check_tree(bench, session, DRAFT_TABLE)


def test_rows_of_the_committed_path_are_not_run_again() -> None:
    """After a verdict along run nodes the model has nothing to catch up, and the nodes below stay."""
    bench, attach = TableBench(TARGET_TABLE), make_attach()
    bench.worker.post(attach)
    bench.settle()
    session = bench.worker.sessions[attach.key]
    before = len(session.tree)
    bench.worker.post(MiniTarget(TARGET_TABLE, attach).commit(1))
    bench.worker._take_in(0.0)
    assert session.tree.is_expanded
    assert 0 < len(session.tree) < before
    check_tree(bench, session, TARGET_TABLE)


def test_a_long_prompt_does_not_stall_the_others() -> None:
    """While one session's prompt is prefilled in chunks, another's tree grows in between."""
    bench = TableBench(DRAFT_TABLE, prefill_chunk=8)
    short = make_attach(handle=1)
    bench.worker.post(short)
    bench.step()
    quick = bench.worker.sessions[short.key]
    bench.worker.post(make_attach(handle=2, tokens=[1] * 400))
    bench.step(8)
    slow = bench.worker.sessions[make_attach(handle=2).key]
    assert len(quick.tree) > 12
    assert 8 <= bench.engine.cached(bench.model_drafter._seats[slow].slot) < 400
    assert not slow.tree.is_expanded
    bench.settle()
    assert slow.tree.is_expanded


def test_trees_end_where_the_output_ends() -> None:
    """No candidate lies beyond the last token that the request or the context allows."""
    for attach, max_context in (
        (make_attach(max_tokens=3), 600),
        (make_attach(), 8),
    ):
        bench = TableBench(TARGET_TABLE, max_context=max_context)
        bench.worker.post(attach)
        bench.settle()
        session = bench.worker.sessions[attach.key]
        assert max(session.tree.depths) == 3
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(target.commit(3))
        bench.settle()
        assert len(session.tree) == 0
        bench.worker.post(target.commit(5))
        bench.settle()
        assert bench.worker.sessions


def test_no_run_node_is_a_dead_end() -> None:
    """Wherever the target goes along run nodes, it finds a candidate, however unlikely the way was at first."""
    bench, attach = TableBench(DRAFT_TABLE, max_ahead=48), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    for count in (1, 2, 3, 5, 8) * 4:
        bench.settle()
        tree = bench.worker.sessions[attach.key].tree
        assert tree.top
        for node, row in enumerate(tree.scratch):
            assert row == NOT_RUN or tree.children[node]
        bench.worker.post(target.commit(count))


def test_nothing_grows_below_a_stop_token() -> None:
    """What follows the end of the text is never verified."""
    table = Table(log_probs=TARGET_TABLE.log_probs, eos_token_ids=(0, 3, 6, 9, 12))
    for ignore_eos in (False, True):
        sampling = Sampling(
            seed=4, max_tokens=300, temperature=0.8, stop_token_ids=(1,), ignore_eos=ignore_eos
        )
        stops = {1} if ignore_eos else {0, 3, 6, 9, 12, 1}
        bench, attach = TableBench(table, max_ahead=90), make_attach(sampling=sampling)
        target = MiniTarget(table, attach)
        bench.worker.post(attach)
        inner: set[int] = set()
        for _ in range(30):
            bench.settle()
            tree = bench.worker.sessions[attach.key].tree
            inner |= {tree.tokens[p] for p in tree.parents if p != ROOT}
            bench.worker.post(target.commit(2))
        assert inner
        assert not inner & stops


def test_the_tree_is_bounded() -> None:
    """Sent and run nodes stay within `max_ahead`, and depth within twice what the target verifies in a pass."""
    bench = TableBench(DRAFT_TABLE, max_ahead=24)
    attach = make_attach(speculation=Speculation(max_depth=3))
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    for _ in range(20):
        bench.settle()
        tree = bench.worker.sessions[attach.key].tree
        assert 4 <= tree.num_sent <= 24
        assert sum(row != NOT_RUN for row in tree.scratch) <= 24
        assert len(tree) <= 3 * 24
        assert max(tree.depths) <= 6
        bench.worker.post(target.commit(2))


def test_nodes_are_run_before_they_are_worth_sending() -> None:
    """What is worth little now is kept back; the verdict that makes it worth more sends it without another pass."""
    bench, attach = TableBench(DRAFT_TABLE, max_ahead=48), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    num_run_unsent = num_sent_at_once = 0
    for _ in range(40):
        bench.settle()
        session = bench.worker.sessions[attach.key]
        tree = session.tree
        assert 0.0 < session.least_value < session.least_sent
        kept = [node for node in range(len(tree)) if not tree.sent[node]]
        assert all(tree.values[node] < session.least_sent for node in kept) or tree.num_sent == 48
        num_run_unsent += sum(tree.scratch[node] != NOT_RUN for node in kept)
        bench.take()
        bench.worker.post(target.commit(2))
        bench.step()
        # One message before the pass, one after it.
        num_sent_at_once += sum(len(news.tree.tokens) for news in bench.take_news()[:-1])
    assert num_run_unsent > 20
    assert num_sent_at_once > 20


def test_the_most_valuable_nodes_of_all_sessions_are_run() -> None:
    """With more wishes than rows in a pass, every run node is worth at least any that was left."""
    bench = TableBench(DRAFT_TABLE, num_slots=24, expand=8, width=8)
    for handle in range(24):
        bench.worker.post(make_attach(handle=handle, tokens=[handle % VOCAB_SIZE, 2]))
    bench.step(2)
    nodes = [
        (session.tree.values[node], session.tree.scratch[node] != NOT_RUN)
        for session in bench.worker.sessions.values()
        for node in session.tree.top
    ]
    worst_run = min(value for value, was_run in nodes if was_run)
    assert sum(was_run for _, was_run in nodes) == 64
    assert sum(value > worst_run for value, was_run in nodes if not was_run) == 0


def test_calibration_learns_how_good_the_drafter_is() -> None:
    """With a perfect drafter estimates of firsts rise towards 1; with a useless one they fall."""
    other = Table(log_probs=TARGET_TABLE.log_probs[::-1, ::-1, ::-1].copy())
    means = []
    for table in (TARGET_TABLE, other):
        bench, attach = TableBench(table), make_attach()
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(attach)
        for _ in range(120):
            bench.settle()
            bench.worker.post(target.commit(2))
        calibration = bench.model_drafter.calibration
        firsts = [f for f in calibration.table() if f[1] == 1]
        weights = [calibration.table()[f][1] for f in firsts]
        mean = sum(w * calibration.estimate(f) for w, f in zip(weights, firsts, strict=True))
        means.append(mean / sum(weights))
    assert means[0] > 0.8
    assert means[1] < 0.35
