"""Drafting with a speculator, against its net rolled out by hand; features late, doubled, with gaps, or never."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.actors.draft.bench import (
    TARGET_TABLE,
    VOCAB_SIZE,
    Bench,
    MiniTarget,
    make_attach,
)
from tests.actors.draft.heads.nets import WIDTH, random_net, rolled_out, spec_of_net, table_net

from outrider.actors.draft.heads.head_engine import HeadEngine
from outrider.actors.draft.heads.speculator_drafter import SpeculatorDrafter
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.model.growing_drafter import num_nodes_of
from outrider.actors.draft.state.draft_events import AttachSession, SessionKey
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.drafter import FeatureReader
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.noise.gumbel import GumbelNoise

CHILDREN, AHEAD = 4, 64

ORDER_1 = random_table(VOCAB_SIZE, 1, seed=1, concentration=0.1)
"""A target whose law hangs on the last token only."""


class SpeculatorBench(Bench):
    """A worker that drafts with a net."""

    def __init__(self, net: SpeculatorNet, *, num_slots: int = 4) -> None:
        self.net = net
        self.engine = HeadEngine(net, spec_of_net(net), num_slots=num_slots, max_scratch=96)
        sessions = DraftSessions(num_slots, num_nodes_of(CHILDREN, AHEAD))
        self.drafter = SpeculatorDrafter(
            sessions, self.engine, width=CHILDREN, max_ahead=AHEAD, prefill_chunk=32
        )
        super().__init__(sessions, self.drafter)

    def tell(self, key: SessionKey, start: int, stop: int) -> None:
        """The target's hidden states at some positions."""
        session = self.sessions.find(key)
        assert session is not None
        states_TLD = features(key, start, stop)[:, None]
        self.drafter.take_features(session, start, states_TLD)


def features(
    key: SessionKey, start: int, stop: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Hidden states at positions, made up: the same whenever they are asked for."""
    rows = [np.random.default_rng([key.handle, at]).normal(size=WIDTH) for at in range(start, stop)]
    return np.array(rows, np.float32).reshape(-1, WIDTH)


def check_tree(bench: SpeculatorBench, attach: AttachSession, newest: int) -> int:
    """Every node that was run has the children that the net has below the newest state. Returns how many were run."""
    tree, text = bench.tree(attach.key), bench.text(attach.key)
    if newest < 0:
        assert not tree.tokens
        return 0
    feature_D = features(attach.key, newest, newest + 1)[0]
    noise = GumbelNoise(VOCAB_SIZE, torch.device("cpu"))
    run = [node for node, row in enumerate(tree.scratch) if row >= 0]
    for node in [-1, *run] if tree.tokens else []:
        after = [*text, *(tree.paths[node] if node >= 0 else ())]
        scores_V = rolled_out(bench.net, feature_D, after[newest + 1 :])
        if attach.sampling.temperature:
            noise_V = noise.rows(attach.sampling.seed, len(after), 1)[0]
            scores_V = scores_V / attach.sampling.temperature + noise_V
        children = [tree.tokens[child] for child in tree.children(node)]
        assert children == scores_V.topk(CHILDREN).indices.tolist()[: len(children)]
        assert children
        assert len(after) - newest - 1 <= bench.net.config.deepest
    return len(run)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"tied": False},
        {"reads_tokens": False},
        {"tables": "target"},
        {"tables": "target", "feeds": "feature"},
    ],
    ids=str,
)
def test_trees_are_those_of_the_net_rolled_out(shape: dict[str, object]) -> None:
    """Of several sessions at once, each below its own newest state; with every variant of the net."""
    bench = SpeculatorBench(random_net(**shape))
    attaches = [
        make_attach(handle=1, tokens=range(1, 20)),
        make_attach(handle=2, tokens=[3, 4], temperature=0.0),
    ]
    for attach in attaches:
        bench.worker.post(attach)
    bench.settle()
    for attach in attaches:
        bench.tell(attach.key, 0, len(attach.tokens) - 1)
    bench.settle()
    for attach in attaches:
        assert check_tree(bench, attach, len(attach.tokens) - 2) > 2


@pytest.mark.parametrize("seed", range(4))
def test_states_in_any_order_leave_what_the_newest_alone_would_have(seed: int) -> None:
    """Verdicts and states come when they will, twice or with gaps; at every moment the tree is one below the newest state that came."""
    generator = random.Random(seed)
    bench, attach = SpeculatorBench(random_net()), make_attach(tokens=range(1, 9))
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    newest, run = -1, 0
    for _ in range(60):
        bench.step(generator.randint(0, 4))
        if generator.random() < 0.5:
            bench.worker.post(target.commit(generator.choice([1, 1, 2, 3, 5])))
        length = len(bench.text(attach.key))
        if generator.random() < 0.6 and length > 1:
            start = generator.randrange(length - 1)
            stop = min(length - 1, start + generator.randint(1, 4))
            bench.tell(attach.key, start, stop)
            newest = max(newest, stop - 1)
        run += check_tree(bench, attach, newest)
    assert run
    bench.settle()
    bench.tell(attach.key, 0, len(target.tokens) - 1)
    bench.settle()
    assert bench.text(attach.key) == target.tokens
    assert check_tree(bench, attach, len(target.tokens) - 2)


def test_nothing_is_proposed_without_a_state_or_too_far_behind_one() -> None:
    """No state has come: silence. The last one is further back than the net goes: silence again, until another comes."""
    bench, attach = SpeculatorBench(random_net()), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    assert isinstance(bench.drafter, FeatureReader)
    bench.worker.post(attach)
    bench.settle()
    assert not bench.tree(attach.key).tokens
    bench.tell(attach.key, 3, 4)
    bench.settle()
    assert bench.take_news()
    bench.worker.post(target.commit(bench.net.config.deepest + 1))
    bench.settle()
    assert not bench.tree(attach.key).tokens
    assert not bench.take_news()
    bench.tell(attach.key, target.length - 2, target.length - 1)
    bench.settle()
    assert bench.take_news()


def test_late_states_are_made_up_for_by_own_ones() -> None:
    """A verdict's state is waited for until the next verdict; then the tree goes on below, from the net's own states."""
    bench, attach = SpeculatorBench(random_net()), make_attach()
    target = MiniTarget(ORDER_1, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.tell(attach.key, 0, 4)
    bench.settle()
    passes = bench.worker.stats.passes
    bench.worker.post(target.commit(1))
    bench.settle()
    assert bench.worker.stats.passes == passes
    bench.worker.post(target.commit(1))
    bench.settle()
    assert bench.worker.stats.passes > passes
    assert check_tree(bench, attach, 3) > 0
    bench.tell(attach.key, 5, 6)
    bench.settle()
    assert check_tree(bench, attach, 5) > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_perfect_net_foresees_every_draw(temperature: float) -> None:
    """A net that is the target's table: all that is committed within its depth was in the tree."""
    bench = SpeculatorBench(table_net(ORDER_1.log_probs))
    attach = make_attach(temperature=temperature)
    target = MiniTarget(ORDER_1, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.tell(attach.key, 0, 4)
    for count in (1, 2, 3, 1, 3, 2):
        bench.settle()
        bench.worker.post(target.commit(count))
        bench.settle()
        bench.tell(attach.key, target.length - 2, target.length - 1)
    bench.settle()
    assert bench.worker.stats.foreseen == bench.worker.stats.committed


def test_text_that_was_replaced_takes_its_states_along() -> None:
    """After a resync that exchanges the text, states of tokens that are gone count for nothing."""
    bench, attach = SpeculatorBench(random_net()), make_attach()
    bench.worker.post(attach)
    bench.settle()
    bench.tell(attach.key, 0, 4)
    bench.settle()
    session = bench.sessions.find(attach.key)
    assert session is not None
    bench.sessions.replace(session.row, 2, [9, 9, 9])
    bench.drafter.rewrite(session, 2)
    bench.settle()
    assert not bench.tree(attach.key).tokens
    bench.tell(attach.key, 2, 4)
    bench.settle()
    assert check_tree(bench, attach, 3)


def test_a_session_that_comes_again_starts_from_nothing() -> None:
    """The slot of one that left says nothing of its states to the next."""
    bench = SpeculatorBench(random_net(), num_slots=1)

    def attached(handle: int, tokens: Sequence[int]) -> AttachSession:
        attach = make_attach(handle=handle, tokens=tokens)
        bench.worker.post(attach)
        bench.settle()
        return attach

    first = attached(1, [1, 2, 3])
    bench.tell(first.key, 0, 2)
    bench.settle()
    session = bench.sessions.find(first.key)
    assert session is not None
    bench.drafter.detach(session)
    bench.sessions.remove(session)
    second = attached(2, [1, 2, 3])
    assert not bench.tree(second.key).tokens
