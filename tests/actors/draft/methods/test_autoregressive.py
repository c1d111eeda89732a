"""Drafting with a model: trees, rows and estimates, against a model that is a table."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
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

from outrider.actors.draft.state.draft_events import SessionKey
from outrider.actors.draft.trees.draft_cost import PassCost
from outrider.actors.engine.tables.tabular_engine import Table
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation

WIDTH = 4


def likely_draws(table: Table, sampling: Sampling, text: Sequence[int]) -> list[int]:
    """The best tokens after a text under the shared noise."""
    scores_V = torch.from_numpy(table.log_probs_after(text)).to(torch.float32)
    if sampling.temperature > 0.0:
        noise_1V = GumbelNoise(VOCAB_SIZE, torch.device("cpu")).rows(sampling.seed, len(text), 1)
        scores_V = scores_V / sampling.temperature + noise_1V[0]
    return scores_V.topk(WIDTH).indices.tolist()


def check_tree(bench: TableBench, key: SessionKey, table: Table) -> None:
    """The whole state is what a drafter would have that computed everything from scratch."""
    tree, slot, text = bench.tree(key), bench.slot(key), bench.text(key)
    run = [node for node, row in enumerate(tree.scratch) if row >= 0]
    assert bench.engine.scratch(slot) == len(run)
    assert sorted(tree.scratch[node] for node in run) == list(range(len(run)))
    if bench.is_expanded(key):
        assert bench.engine.cached(slot) == len(text)
    session = bench.sessions.find(key)
    assert session is not None
    for node, parent in enumerate(tree.parents):
        assert tree.values[node] == pytest.approx(
            tree.estimates[node] * (1.0 if parent < 0 else tree.values[parent])
        )
    for node in [-1, *run] if bench.is_expanded(key) else run:
        path = tree.paths[node] if node >= 0 else ()
        expected = likely_draws(table, session.sampling, [*text, *path])
        children = [tree.tokens[child] for child in tree.children(node)]
        assert children == expected[: len(children)]
        assert children


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_perfect_drafter_foresees_every_draw(temperature: float) -> None:
    """With the target's own distributions the best child of the root is the target's draw, always."""
    bench, generator = TableBench(TARGET_TABLE), random.Random(1)
    attach = make_attach(temperature=temperature)
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    for _ in range(40):
        tree = bench.tree(attach.key)
        assert tree.tokens[tree.children(-1)[0]] == target.draw(target.tokens)
        bench.worker.post(target.commit(generator.randint(1, 6)))
        bench.settle()
        assert bench.text(attach.key) == target.tokens
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
        for session in bench.sessions:
            check_tree(bench, session.key, DRAFT_TABLE)
    bench.settle()
    for attach, target in zip(attaches, targets, strict=True):
        assert bench.text(attach.key) == target.tokens
        assert bench.is_expanded(attach.key)
        check_tree(bench, attach.key, DRAFT_TABLE)


def test_rows_of_the_committed_path_are_not_run_again() -> None:
    """After a verdict along run nodes the model has nothing to catch up, and the nodes below stay."""
    bench, attach = TableBench(TARGET_TABLE), make_attach()
    bench.worker.post(attach)
    bench.settle()
    before = len(bench.tree(attach.key).tokens)
    bench.worker.core.take(MiniTarget(TARGET_TABLE, attach).commit(1), 0.0)
    assert bench.is_expanded(attach.key)
    assert 0 < len(bench.tree(attach.key).tokens) < before
    check_tree(bench, attach.key, TARGET_TABLE)


def test_a_long_prompt_does_not_stall_the_others() -> None:
    """While one session's prompt is prefilled in chunks, another's tree grows in between."""
    bench = TableBench(DRAFT_TABLE, prefill_chunk=8)
    short = make_attach(handle=1)
    bench.worker.post(short)
    bench.step()
    bench.worker.post(make_attach(handle=2, tokens=[1] * 400))
    bench.step(8)
    slow = make_attach(handle=2).key
    assert len(bench.tree(short.key).tokens) > 12
    assert 8 <= bench.engine.cached(bench.slot(slow)) < 400
    assert not bench.is_expanded(slow)
    bench.settle()
    assert bench.is_expanded(slow)


def test_trees_end_where_the_output_ends() -> None:
    """No candidate lies beyond the last token that the request or the context allows."""
    for attach, max_context in (
        (make_attach(max_tokens=3), 600),
        (make_attach(), 8),
    ):
        bench = TableBench(TARGET_TABLE, max_context=max_context)
        bench.worker.post(attach)
        bench.settle()
        assert max(bench.tree(attach.key).depths) == 3
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(target.commit(3))
        bench.settle()
        assert len(bench.tree(attach.key).tokens) == 0
        bench.settle()
        assert len(bench.sessions) == 1


def test_no_run_node_is_a_dead_end() -> None:
    """Wherever the target goes along run nodes, it finds a candidate, however unlikely the way was at first."""
    bench, attach = TableBench(DRAFT_TABLE, max_ahead=48), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    for count in (1, 2, 3, 5, 8) * 4:
        bench.settle()
        tree = bench.tree(attach.key)
        assert tree.children(-1)
        for node, row in enumerate(tree.scratch):
            assert row < 0 or tree.children(node)
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
            tree = bench.tree(attach.key)
            inner |= {tree.tokens[p] for p in tree.parents if p >= 0}
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
        tree = bench.tree(attach.key)
        assert 4 <= bench.num_sent(attach.key) <= 24
        assert tree.num_run <= 24
        assert max(tree.depths) <= 6
        bench.worker.post(target.commit(2))


def test_nodes_are_run_before_they_are_worth_sending() -> None:
    """What is worth little now is kept back; the verdict that makes it worth more sends it without another pass."""
    bench, attach = TableBench(DRAFT_TABLE, bytes_per_token=60.0), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    num_run_unsent = num_sent_at_once = 0
    for _ in range(40):
        bench.settle()
        tree = bench.tree(attach.key)
        kept = [node for node, number in enumerate(tree.sent) if not number]
        num_run_unsent += sum(tree.scratch[node] >= 0 for node in kept)
        bench.take()
        bench.worker.core.take(target.commit(2), bench.now)
        bench.worker.core.begin(bench.now)
        bench.reports.extend(bench.worker.core.take_reports())
        num_sent_at_once += sum(len(news.tokens) for news in bench.take_news())
    assert num_run_unsent > 20
    assert num_sent_at_once > 20


def test_the_most_valuable_nodes_of_all_sessions_are_run() -> None:
    """Where rows cost much, a pass runs some, and every one of them is worth at least any that was left."""
    bench = TableBench(DRAFT_TABLE, num_slots=24, width=8, prefill_chunk=64)
    for handle in range(24):
        bench.worker.post(make_attach(handle=handle, tokens=[handle % VOCAB_SIZE, 2]))
    bench.step()
    bench.model_drafter.cost = PassCost(fixed_s=1e-4, row_s=1e-5)
    plan = bench.model_drafter.plan(np.arange(24))
    assert plan is not None
    ran = {
        (row, node) for row, node in zip(plan.rows_K.tolist(), plan.nodes_K.tolist(), strict=True)
    }
    values = {
        (session.row, 1 + node): value
        for session in bench.sessions
        for node, value in enumerate(bench.tree(session.key).values)
    }
    assert 1 < len(ran) < 0.8 * len(values)
    assert min(values[key] for key in ran) >= max(v for key, v in values.items() if key not in ran)


def test_estimates_learn_how_good_the_drafter_is() -> None:
    """With a perfect drafter estimates of firsts rise towards 1; with a useless one they fall."""
    other = Table(log_probs=TARGET_TABLE.log_probs[::-1, ::-1, ::-1].copy())
    means = []
    for table in (TARGET_TABLE, other):
        bench, attach = TableBench(table), make_attach()
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(attach)
        firsts = []
        for round_ in range(120):
            bench.settle()
            if round_ >= 60:
                tree = bench.tree(attach.key)
                firsts.append(tree.estimates[tree.children(-1)[0]])
            bench.worker.post(target.commit(2))
        means.append(sum(firsts) / len(firsts))
    assert means[0] > 0.8
    assert means[1] < 0.35


def test_estimates_are_match_rates() -> None:
    """Of the candidates that are thought to match with some probability about so many do."""
    bench = TableBench(DRAFT_TABLE)
    estimates: list[float] = []
    hits: list[bool] = []
    for handle in range(3):
        sampling = Sampling(seed=handle, max_tokens=500, temperature=0.8)
        attach = make_attach(tokens=[handle, 3], sampling=sampling)
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(attach)
        for _ in range(70):
            bench.settle()
            tree, drawn = bench.tree(attach.key), target.draw(target.tokens)
            for child in tree.children(-1):
                estimates.append(tree.estimates[child])
                hits.append(tree.tokens[child] == drawn)
            bench.worker.post(target.commit(1))
    order = sorted(range(len(hits)), key=estimates.__getitem__)
    quarter = len(order) // 4
    for start in range(0, 4 * quarter, quarter):
        part = order[start : start + quarter]
        expected = sum(estimates[i] for i in part) / quarter
        assert sum(hits[i] for i in part) / quarter == pytest.approx(expected, abs=0.1)


def test_roots_of_the_target_are_grown_below() -> None:
    """The target's own candidates hang below the text as if they had been sent, and what grows there is sent."""
    bench, attach = TableBench(DRAFT_TABLE, bytes_per_token=180.0), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    bench.worker.post(target.commit(1, roots=(5, 6, 1000)))
    bench.settle()
    tree = bench.tree(attach.key)
    tops = {tree.tokens[child] for child in tree.children(-1)}
    assert {5, 6} <= tops
    assert 1000 not in tops
    paths = [path for news in bench.take_news() for path in news.paths]
    assert any(len(path) > 1 and path[0] in {5, 6} for path in paths)
