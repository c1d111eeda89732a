"""States that a dropped tree leaves behind: which row takes which, and what it costs."""

from __future__ import annotations

import torch
from tests.actors.draft.eagle.small_eagle import eagle_config, eagle_net, eagle_states
from tests.actors.draft.eagle.test_eagle_engine import TEXT, engine_of, read, tell

from outrider.actors.draft.eagle.eagle_engine import EagleEngine
from outrider.actors.draft.eagle.kept_states import Grade, KeptStates
from outrider.actors.engine.protocol import Moves, Rows

CPU = torch.device("cpu")


def test_the_nearest_state_is_taken() -> None:
    """Same token behind the same; same token; a sibling; whatever there is of the position; nothing of another."""
    kept = KeptStates(8, 2, CPU)
    sibling, pair, far = kept.keep(5, 1, 7), kept.keep(5, 2, 8), kept.keep(5, 3, 9)
    cases = {
        (5, 2, 8): (pair, 8, Grade.SAME_PAIR),
        (5, 1, 8): (pair, 8, Grade.SAME_TOKEN),
        (5, 3, 4): (far, 9, Grade.OTHER_TOKEN),
        (5, 6, 4): (sibling, 7, Grade.OTHER_TOKEN),
    }
    for asked, (place, token, grade) in cases.items():
        found = kept.find(*asked)
        assert found is not None
        assert (found.place, found.read, found.grade) == (place, token, grade)
    assert kept.find(6, 2, 8) is None
    kept.forget_before(6)
    assert kept.find(5, 2, 8) is None


def test_the_oldest_make_room() -> None:
    """No more states than there is room for, and none under another's name."""
    kept = KeptStates(3, 2, CPU)
    for token in range(5):
        kept.keep(5, 1, token)
    assert {token for token in range(5) if _is_same(kept, token)} == {2, 3, 4}


def _is_same(kept: KeptStates, token: int) -> bool:
    found = kept.find(5, 1, token)
    return found is not None and found.grade == Grade.SAME_PAIR


def drafted(engine: EagleEngine, slot: int, tokens: list[int]) -> torch.Tensor:
    """Logits after each token of a chain below the text."""
    parents = range(-1, len(tokens) - 1)
    return engine.forward([Rows(slot=slot, tokens=tokens, parents=parents)]).values_RV


def test_a_dropped_tree_seeds_the_next() -> None:
    """Rows that were there are not computed again; behind another token they are those that were there with that token in them."""
    net = eagle_net(eagle_config(reuse_rank=3))
    engine, features = engine_of(net, inject_from=1), eagle_states(net.config, 12)
    slot = engine.acquire()
    tell(engine, slot, TEXT, features, range(8))
    read(engine, slot, TEXT)
    before = drafted(engine, slot, [5, 6, 7])
    assert (engine.num_computed, engine.num_reused) == (3, 0)
    longer = [*TEXT, 5]
    engine.rebase(Moves.one(slot, [0]))
    engine.truncate(slot, len(TEXT))
    tell(engine, slot, longer, features, range(8, 9))
    read(engine, slot, [5])
    assert (engine.num_computed, engine.num_reused) == (1, 0)
    after = drafted(engine, slot, [6, 4, 9])
    assert (engine.num_computed, engine.num_reused) == (1, 2)
    assert engine.levels_W is not None
    assert engine.levels_W.tolist() == [Grade.SAME_PAIR, Grade.OTHER_TOKEN, Grade.COMPUTED]
    torch.testing.assert_close(after[0], before[1])
    assert not torch.allclose(after[1], before[2], atol=1e-3)
    assert net.reuse_out is not None
    net.reuse_out.weight.zero_()
    engine.truncate(slot, len(longer))
    torch.testing.assert_close(drafted(engine, slot, [6, 4])[1], before[2])


def test_only_what_is_near_enough_is_taken() -> None:
    """The engine is told how far it may go."""
    net = eagle_net()
    for inject_from, last in ((0, Grade.COMPUTED), (3, Grade.OTHER_TOKEN), (4, Grade.COMPUTED)):
        engine, features = engine_of(net, inject_from=inject_from), eagle_states(net.config, 12)
        slot = engine.acquire()
        tell(engine, slot, TEXT, features, range(8))
        read(engine, slot, TEXT)
        drafted(engine, slot, [5, 6, 7])
        engine.truncate(slot, len(TEXT))
        drafted(engine, slot, [4, 6, 9])
        assert engine.levels_W is not None
        assert engine.levels_W.tolist() == [Grade.COMPUTED, Grade.SAME_TOKEN, last]


def test_a_replaced_text_takes_what_was_kept_along() -> None:
    """As does the end of a session."""
    net = eagle_net()
    engine, features = engine_of(net, inject_from=1), eagle_states(net.config, 12)
    for forget in (lambda slot: engine.forget(slot, 4), engine.release):
        slot = engine.acquire()
        tell(engine, slot, TEXT, features, range(8))
        read(engine, slot, TEXT)
        drafted(engine, slot, [5, 6, 7])
        engine.truncate(slot, 0)
        forget(slot)
        if engine.num_free == engine.num_slots:
            assert engine.acquire() == slot
        tell(engine, slot, TEXT, features, range(8))
        read(engine, slot, TEXT)
        drafted(engine, slot, [5, 6, 7])
        assert engine.num_reused == 0
        engine.release(slot)
