"""EAGLE-3 with caches, slots and trees: what comes out is what the net says of each text by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.draft.eagle.small_eagle import (
    eagle_config,
    eagle_net,
    eagle_spec,
    eagle_states,
    plainly,
)

from outrider.actors.draft.eagle.eagle_engine import EagleEngine
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.engine.protocol import Moves, Rows

TEXT = (3, 7, 1, 22, 9, 9, 14, 2, 5)


def engine_of(net: EagleNet, *, inject_from: int | None = None) -> EagleEngine:
    """Three slots."""
    return EagleEngine(net, eagle_spec(net), num_slots=3, max_scratch=32, inject_from=inject_from)


def tell(
    engine: EagleEngine,
    slot: int,
    text: Sequence[int],
    features: NDArray[np.float32],
    places: range,
) -> None:
    """States of some positions of a text."""
    if not places:
        return
    behind = np.array(text[places.start + 1 : places.stop + 1])
    engine.tell_all(slot, places.start, features[places.start : places.stop], behind)


def read(engine: EagleEngine, slot: int, tokens: Sequence[int]) -> torch.Tensor:
    """Commits tokens; the logits after the last one."""
    count = len(tokens)
    rows = Rows(slot=slot, tokens=tokens, parents=range(-1, count - 1), logits="last")
    values = engine.forward([rows]).values_RV[0]
    engine.rebase(Moves.one(slot, range(count)))
    return values


def expected(
    net: EagleNet, features: NDArray[np.float32], known: int, text: Sequence[int]
) -> torch.Tensor:
    """Logits after a text of whose first `known` positions the target has told."""
    return net.logits(plainly(net, features[:known], text)[-1])


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_late_states_are_replaced_by_the_nets_own(lag: int) -> None:
    """The newest positions are read with states of the net; once the target tells, with its own and nothing of the former stays."""
    net = eagle_net()
    engine, features = engine_of(net), eagle_states(net.config, 12)
    slot = engine.acquire()
    known = len(TEXT) - 1 - lag
    tell(engine, slot, TEXT, features, range(known))
    same(read(engine, slot, TEXT), expected(net, features, known, TEXT))
    tell(engine, slot, TEXT, features, range(known, len(TEXT) - 1))
    engine.truncate(slot, len(TEXT) - 1)
    same(read(engine, slot, TEXT[-1:]), expected(net, features, len(TEXT) - 1, TEXT))


def test_states_come_in_any_order_and_twice() -> None:
    """In pieces, backwards, doubled: as if they had come at once."""
    net = eagle_net()
    features = eagle_states(net.config, 12)
    pieces = [range(5, 8), range(2), range(2, 5), range(2, 5)]
    found = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        engine = engine_of(net)
        slot = engine.acquire()
        for piece in order:
            tell(engine, slot, TEXT, features, pieces[piece])
        found.append(read(engine, slot, TEXT))
    # Not bit by bit: states that come at once are run in one pass, and its size decides how some processors round.
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    same(found[0], expected(net, features, 8, TEXT))


def test_rows_of_a_tree_are_chains_of_their_own() -> None:
    """Every node of trees of several sessions in one pass has the logits of its path; verdicts keep what is below."""
    net = eagle_net()
    engine, features = engine_of(net), eagle_states(net.config, 30)
    texts = {engine.acquire(): list(TEXT[:length]) for length in (9, 4)}
    for slot, text in texts.items():
        tell(engine, slot, text, features, range(len(text) - 1))
        read(engine, slot, text)
    tokens, parents = [4, 8, 4, 11, 0], [-1, -1, 1, 1, 2]
    for part in (slice(0, 2), slice(2, 5)):
        given = [Rows(slot=slot, tokens=tokens[part], parents=parents[part]) for slot in texts]
        logits = engine.forward(given)
        for entry, text in enumerate(texts.values()):
            for row, node in enumerate(range(5)[part]):
                path: list[int] = []
                while node >= 0:
                    path.insert(0, tokens[node])
                    node = parents[node]
                wanted = expected(net, features, len(text) - 1, [*text, *path])
                same(logits.of(entry)[row], wanted)
    slot, text = next(iter(texts.items()))
    engine.rebase(Moves.one(slot, [1], [2, 3, 4]))
    below = engine.forward([Rows(slot=slot, tokens=[6], parents=[2])]).values_RV[0]
    same(below, expected(net, features, len(text) - 1, [*text, 8, 4, 0, 6]))


def test_a_draft_leaves_nothing_behind() -> None:
    """Drafted twice from one state, the same comes out; and after a verdict that took another way, what is drafted from scratch."""
    net = eagle_net()
    engine, features = engine_of(net), eagle_states(net.config, 12)
    slot = engine.acquire()
    tell(engine, slot, TEXT, features, range(8))
    first = read(engine, slot, TEXT)
    for _ in range(2):
        engine.forward([Rows(slot=slot, tokens=[5, 6, 7], parents=[-1, 0, 0])])
        engine.truncate(slot, len(TEXT) - 1)
        assert torch.equal(read(engine, slot, TEXT[-1:]), first)
    longer = [*TEXT, 17, 18]
    engine.forward([Rows(slot=slot, tokens=[17, 6], parents=[-1, 0])])
    engine.rebase(Moves.one(slot, [0]))
    engine.truncate(slot, len(TEXT))
    tell(engine, slot, longer, features, range(8, 10))
    same(read(engine, slot, longer[-2:]), expected(net, features, 10, longer))


def test_nothing_is_said_without_states_nor_beyond_the_depth() -> None:
    """Zeros: before the first state, and further behind the newest than the net may go."""
    net = eagle_net(eagle_config(num_steps=1))
    engine, features = engine_of(net), eagle_states(net.config, 12)
    slot = engine.acquire()
    assert not read(engine, slot, TEXT).any()
    engine.truncate(slot, 0)
    known = len(TEXT) - 1 - net.config.deepest
    tell(engine, slot, TEXT, features, range(known))
    assert not read(engine, slot, TEXT).any()
    engine.truncate(slot, known)
    tell(engine, slot, TEXT, features, range(known, known + 1))
    assert read(engine, slot, TEXT[known:]).any()


def test_the_net_goes_on_through_two_trees() -> None:
    """One that the target verifies and the next behind it: a net of five steps says something of sixteen tokens in a row behind the newest state."""
    net = eagle_net(eagle_config(num_steps=5))
    engine, features = engine_of(net), eagle_states(net.config, 12)
    slot = engine.acquire()
    tell(engine, slot, TEXT, features, range(len(TEXT) - 1))
    read(engine, slot, TEXT)
    path = [random.Random(2).randrange(24) for _ in range(16)]
    logits = engine.forward([Rows(slot=slot, tokens=path, parents=range(-1, 15))])
    wanted = plainly(net, features[: len(TEXT) - 1], [*TEXT, *path])[-1]
    same(logits.values_RV[-1], net.logits(wanted))


def test_an_abandoned_slot_tells_the_next_session_nothing() -> None:
    """Neither the context nor states of a session that has left."""
    net = eagle_net()
    engine, features = engine_of(net), eagle_states(net.config, 12)
    slot = engine.acquire()
    tell(engine, slot, TEXT, features, range(8))
    read(engine, slot, TEXT)
    engine.release(slot)
    assert engine.acquire() == slot
    other = [random.Random(1).randrange(24) for _ in range(5)]
    changed = eagle_states(net.config, 12, seed=4)
    tell(engine, slot, other, changed, range(4))
    same(read(engine, slot, other), expected(net, changed, 4, other))
