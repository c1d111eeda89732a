"""EAGLE-3 at a real target worker, through bytes: it proposes, with and without reuse, and no text changes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.actors.draft.bench import CHEAP, Bench, Verdict, frame_of, make_attach
from tests.actors.draft.block.test_block_drafter import Missing
from tests.actors.draft.eagle.small_eagle import (
    eagle_config,
    eagle_drafter,
    eagle_net,
    eagle_states,
)
from tests.actors.exchange.test_feedback import Abuse
from tests.actors.pair.pair import Pair, texts_alone

from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash

PROMPT = (1, 2, 3, 4, 5, 0, 3)
TABLE = random_table(24, 2, seed=9, concentration=0.3)


def run(
    net: EagleNet,
    sampling: Sampling,
    meddle: object = None,
    *,
    inject_from: int | None = None,
) -> tuple[Pair, list[int]]:
    """A text by a real target worker."""
    given = {} if meddle is None else {"meddle_features": meddle}
    pair = Pair(
        TABLE,
        TABLE,
        prefill_chunk=4,
        feedback=net.config.request,
        method=eagle_drafter(net, inject_from=inject_from),
        **given,  # type: ignore[arg-type]
    )
    pair.open(0, sampling, Speculation(), PROMPT)
    pair.run()
    return pair, pair.texts[0]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("inject_from", [None, 1])
def test_text_is_plain_decodings_whatever_states_do(
    temperature: float, inject_from: int | None
) -> None:
    """In order, late, missing, doubled, false or not at all."""
    net = eagle_net(eagle_config(reuse_rank=3))
    networks: tuple[tuple[object, object], ...] = (
        (None, Missing(0)),
        (Abuse(1), lambda frames: []),
    )
    for seed, of_seed in enumerate(networks):
        sampling = Sampling(seed=seed, max_tokens=50, temperature=temperature)
        (plain,) = texts_alone(TABLE, [sampling], PROMPT)
        for network in of_seed:
            pair, text = run(net, sampling, network, inject_from=inject_from)
            assert text == plain
            assert not pair.ended
            assert (pair.draft.stats.passes > 5) == (seed == 0 or isinstance(network, Abuse))


def test_a_reduced_vocabulary_proposes_its_own_ids_only() -> None:
    """All that is sent is mapped, also where the node has more children than the net has ids."""
    drafted = (2, 5, 6, 17)
    net = eagle_net(eagle_config(num_drafted=4), drafted=drafted)
    sessions, drafter = eagle_drafter(net, width=8)
    bench = Bench(sessions, drafter, max_ahead=64, bytes_per_token=CHEAP)
    attach = make_attach(tokens=PROMPT, temperature=0.8)
    bench.worker.post(attach)
    bench.settle()
    session = sessions.find(attach.key)
    assert session is not None
    assert not bench.tree(attach.key).tokens
    drafter.take_features(session, 0, eagle_states(net.config, len(PROMPT) - 1))
    bench.settle()
    tree = bench.tree(attach.key)
    assert len(tree.tokens) > 4
    assert {*tree.tokens} <= {*drafted}
    assert max(len(path) for path in tree.paths) > 2


def test_states_of_all_positions_are_read_once_with_the_tokens_behind_them() -> None:
    """What the drafter gets of a text in one frame or in many makes the same tree."""
    net = eagle_net()
    trees = []
    for pieces in ([(0, 6)], [(2, 4), (4, 6), (0, 3)], [(5, 6), (0, 5)]):
        sessions, drafter = eagle_drafter(net)
        bench = Bench(sessions, drafter, max_ahead=64, bytes_per_token=CHEAP)
        attach = make_attach(tokens=PROMPT, temperature=0.8)
        bench.worker.post(attach)
        bench.settle()
        session = sessions.find(attach.key)
        assert session is not None
        states = eagle_states(net.config, 6)
        for start, end in pieces:
            drafter.take_features(session, start, states[start:end])
        bench.settle()
        tree = bench.tree(attach.key)
        trees.append(dict(zip(tree.paths, tree.values, strict=True)))
    assert len(trees[0]) > 4
    for other in trees[1:]:
        assert other.keys() == trees[0].keys()
        np.testing.assert_allclose(
            list(other.values()), [trees[0][path] for path in other], rtol=1e-4
        )


def test_a_tree_that_was_right_goes_on_until_it_is_further_from_states_than_the_net_goes() -> None:
    """It is not waited for them, and when they come it stays; its rows go on from each other, so at some time there is a new one."""
    net = eagle_net(eagle_config(num_steps=1))
    sessions, drafter = eagle_drafter(net)
    bench = Bench(sessions, drafter, max_ahead=64, bytes_per_token=CHEAP)
    attach = make_attach(tokens=PROMPT, temperature=0.8)
    bench.worker.post(attach)
    bench.settle()
    session = sessions.find(attach.key)
    assert session is not None
    states, text = eagle_states(net.config, 20), list(PROMPT)
    drafter.take_features(session, 0, states[: len(PROMPT) - 1])
    bench.settle()
    stayed = []
    for epoch in range(1, net.config.deepest + 1):
        tree = bench.tree(attach.key)
        best = next(node for node in tree.children(-1) if tree.scratch[node] >= 0)
        text.append(tree.tokens[best])
        verdict = Verdict(
            handle=attach.key.handle,
            epoch=epoch,
            length=len(text),
            hash=base_hash.extend_all(base_hash.EMPTY, text),
            tokens=(text[-1],),
            credits=64,
        )
        bench.worker.post(frame_of([verdict]))
        bench.settle()
        ahead = bench.tree(attach.key)
        assert ahead.tokens
        drafter.take_features(session, len(text) - 2, states[len(text) - 2 : len(text) - 1])
        kept = bench.tree(attach.key)
        stayed.append(bool(kept.tokens))
        if kept.tokens:
            assert kept.paths == ahead.paths
        bench.settle()
        assert bench.tree(attach.key).tokens
    assert stayed == [True] * (net.config.deepest - 1) + [False]
