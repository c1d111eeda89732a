"""The block model by itself: what a slot may depend on, and what is kept of a session."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from tests.actors.draft.block.small_block import CPU, small_config, small_net, states_of

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.train.block.block_objective import Blocks, block_states


def drafted(
    net: BlockNet, cache: ContextCache, slot: int, anchor: int, told: list[int]
) -> torch.Tensor:
    """h of a block."""
    block = net.config.block
    tokens = torch.zeros(1, block, dtype=torch.int64)
    tokens[0, : len(told)] = torch.tensor(told)
    context, seen = cache.before(np.array([slot]), np.array([anchor]))
    is_told = torch.arange(block)[None] < len(told)
    anchors = torch.tensor([anchor])
    return net.states(tokens, is_told, anchors, context, torch.from_numpy(seen))[0]


def test_features_in_any_order_give_the_same_context() -> None:
    """All orders of four messages, one of them twice: the same bits."""
    net = small_net()
    states = states_of(net.config, 11)
    messages = [(0, states[:4]), (4, states[4:5]), (5, states[5:9]), (9, states[9:])]
    found = []
    for order in permutations(messages):
        cache = ContextCache(net.config, net.keys_values, 1, CPU)
        for start, part in (*order, order[0]):
            cache.write(0, start, part)
        assert cache.positions(0) == list(range(11))
        found.append(drafted(net, cache, 0, 11, [3]))
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 8), (5, 1, 6), (30,)])
def test_a_cache_that_grew_equals_one_from_scratch(sizes: tuple[int, ...]) -> None:
    """After verdicts of one token, of a whole block, of more than the window; drafts in between leave nothing behind."""
    net, length = small_net(), sum(sizes)
    states = states_of(net.config, length)
    grown, fresh = (
        ContextCache(net.config, net.keys_values, 2, CPU),
        ContextCache(net.config, net.keys_values, 1, CPU),
    )
    start = 0
    for size in sizes:
        grown.write(1, start, states[start : start + size])
        start += size
        first = drafted(net, grown, 1, start, [7, 2])
        assert torch.equal(first, drafted(net, grown, 1, start, [7, 2]))
    fresh.write(0, 0, states)
    assert grown.positions(1) == list(range(max(0, length - net.config.window), length))
    torch.testing.assert_close(
        drafted(net, grown, 1, length, [7]), drafted(net, fresh, 0, length, [7])
    )


def test_a_block_sees_its_window_and_nothing_behind_its_anchor() -> None:
    """States at or behind the first slot, and those further back than the window, change nothing; others do."""
    net = small_net(small_config(window=6))
    one, other = (
        ContextCache(net.config, net.keys_values, 1, CPU),
        ContextCache(net.config, net.keys_values, 1, CPU),
    )
    states, different = states_of(net.config, 12), states_of(net.config, 12, seed=1)
    one.write(0, 0, states[:8])
    other.write(0, 0, np.concatenate([different[:2], states[2:8]]))
    expected = drafted(net, one, 0, 8, [3])
    torch.testing.assert_close(drafted(net, other, 0, 8, [3]), expected)
    for late in (8, 9):
        other.write(0, late, different[late : late + 1])
        assert other.positions(0)[-1] == late
    near = ContextCache(net.config, net.keys_values, 1, CPU)
    near.write(0, 4, states[4:8])
    far = ContextCache(net.config, net.keys_values, 1, CPU)
    far.write(0, 4, np.concatenate([states[4:8], different[8:10]]))
    torch.testing.assert_close(drafted(net, far, 0, 8, [3]), drafted(net, near, 0, 8, [3]))
    assert not torch.allclose(drafted(net, near, 0, 8, [3]), expected)


def test_blocks_of_a_batch_see_nothing_of_each_other() -> None:
    """Each block of a pass has the states that it has alone; the training pass computes the same as the cache."""
    net, length = small_net(), 14
    states = np.stack([states_of(net.config, length, seed=seed) for seed in (1, 2)])
    tokens = torch.randint(24, (2, length), generator=torch.Generator().manual_seed(1))
    blocks = Blocks(torch.tensor([[5, 9, 2], [10, 1, 7]]), torch.tensor([[0, 2, 1], [0, 3, 0]]))
    packed = block_states(net, tokens, torch.from_numpy(states), blocks)
    for row in range(2):
        for place in range(3):
            anchor = int(blocks.anchors_RA[row, place])
            cache = ContextCache(net.config, net.keys_values, 1, CPU)
            cache.write(0, 0, states[row][:anchor])
            told = tokens[row, anchor : anchor + 1 + int(blocks.revealed_RA[row, place])]
            alone = drafted(net, cache, 0, anchor, told.tolist())
            torch.testing.assert_close(packed[row, place], alone, atol=1e-5, rtol=1e-5)


def test_every_slot_sees_the_others_and_what_is_revealed() -> None:
    """Slots are bidirectional: a token told to the last slot but one moves the first."""
    net = small_net()
    cache = ContextCache(net.config, net.keys_values, 1, CPU)
    cache.write(0, 0, states_of(net.config, 5))
    plain, told = drafted(net, cache, 0, 5, [3]), drafted(net, cache, 0, 5, [3, 4, 5])
    assert (plain - told).abs().amax(dim=-1).min() > 1e-4


def test_positions_are_relative_and_holes_are_nothing() -> None:
    """The same states a thousand positions later give the same block, and missing ones are left out."""
    net = small_net()
    states = states_of(net.config, 6)
    near, far, holed = (ContextCache(net.config, net.keys_values, 1, CPU) for _ in range(3))
    near.write(0, 0, states)
    far.write(0, 1000, states)
    torch.testing.assert_close(
        drafted(net, far, 0, 1006, [3]), drafted(net, near, 0, 6, [3]), atol=1e-4, rtol=1e-4
    )
    for position in (0, 1, 4, 5):
        holed.write(0, position, states[position : position + 1])
    assert holed.positions(0) == [0, 1, 4, 5]
    assert not torch.allclose(drafted(net, holed, 0, 6, [3]), drafted(net, near, 0, 6, [3]))


def test_forgotten_positions_may_come_anew() -> None:
    """After a text was replaced from some token on."""
    net = small_net()
    cache, other = (
        ContextCache(net.config, net.keys_values, 1, CPU),
        ContextCache(net.config, net.keys_values, 1, CPU),
    )
    states, different = states_of(net.config, 8), states_of(net.config, 8, seed=1)
    cache.write(0, 0, states)
    assert not cache.write(0, 5, different[5:])
    cache.forget(0, 5)
    assert cache.positions(0) == [0, 1, 2, 3, 4]
    assert cache.write(0, 5, different[5:])
    other.write(0, 0, np.concatenate([states[:5], different[5:]]))
    torch.testing.assert_close(drafted(net, cache, 0, 8, [1]), drafted(net, other, 0, 8, [1]))


def test_shapes_of_a_file() -> None:
    """Names and sizes as DeepSpec writes them, and the parts that rank 0 leaves out."""
    shapes = {name: tuple(one.shape) for name, one in small_net().state_dict().items()}
    assert shapes["fc.weight"] == (24, 2 * 24)
    assert shapes["layers.1.self_attn.k_proj.weight"] == (6, 24)
    assert shapes["layers.0.self_attn.q_norm.weight"] == (6,)
    assert shapes["markov_head.markov_w1.weight"] == (24, 5)
    assert shapes["markov_head.markov_w2.weight"] == (24, 5)
    assert shapes["confidence_head.proj.weight"] == (1, 24 + 5)
    dflash = small_net(small_config(rank=0, has_confidence=False)).state_dict()
    assert set(shapes) - set(dflash) == {
        "markov_head.markov_w1.weight",
        "markov_head.markov_w2.weight",
        "confidence_head.proj.weight",
        "confidence_head.proj.bias",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": 0}, "block"),
        ({"most_revealed": 4}, "most_revealed"),
        ({"num_key_heads": 3}, "num_heads"),
        ({"head_dim": 5}, "head_dim"),
        ({"taps": ()}, "taps"),
        ({"taps": (1, 1)}, "each at most once"),
    ],
)
def test_wrong_shapes_are_refused(changes: dict[str, object], message: str) -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match=message):
        small_config(**changes)


def test_a_shape_survives_its_file() -> None:
    """And what is unknown does not pass."""
    config = small_config(most_revealed=2)
    assert BlockConfig.from_json(config.as_json()) == config
    with pytest.raises(ValueError, match="gamma"):
        BlockConfig.from_json({**config.as_json(), "gamma": 7})
    with pytest.raises(ValueError, match="model_type"):
        BlockConfig.from_json({**config.as_json(), "model_type": "llama"})
