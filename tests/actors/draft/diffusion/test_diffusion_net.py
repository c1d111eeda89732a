"""The diffusion model behind its engine: what a row may depend on, and what is kept of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.actors.draft.diffusion.small_diffusion import engine_of, small_config, small_net

from outrider.actors.draft.diffusion.diffusion_engine import DiffusionEngine
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.engine.protocol import Moves, Rows
from outrider.actors.train.block.block_objective import Blocks
from outrider.actors.train.diffusion.diffusion_objective import diffusion_states

TEXT = [3, 14, 15, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2]


def chain(tokens: Sequence[int]) -> list[int]:
    """Parents of a run of tokens."""
    return list(range(-1, len(tokens) - 1))


def read(engine: DiffusionEngine, slot: int, tokens: Sequence[int]) -> torch.Tensor:
    """Reads tokens and fills a block behind them: logits [L, V]."""
    rows = Rows(slot=slot, tokens=tokens, parents=chain(tokens), logits="last")
    values = engine.forward([rows]).values_RV
    engine.rebase(Moves.one(slot, range(len(tokens))))
    return values


def step(engine: DiffusionEngine, slot: int, told: Sequence[int]) -> torch.Tensor:
    """Another step that is told tokens: logits [L - r, V]."""
    rows = Rows(slot=slot, tokens=told, parents=chain(told), logits="all")
    values = engine.forward([rows]).values_RV
    engine.truncate(slot, engine.cached(slot))
    return values


def trained(net: DiffusionNet, text: Sequence[int], told: Sequence[int] = ()) -> torch.Tensor:
    """The same as the trainer sees it: the logits of a block behind a text, [L - r, V]."""
    tokens = torch.tensor([[*text, *told, *[0] * net.config.block]])
    blocks = Blocks(torch.tensor([[len(text) - 1]]), torch.tensor([[len(told)]]))
    states = diffusion_states(net, tokens, blocks)[1][0, 0]
    return net.unary(states[len(told) :])


@pytest.mark.parametrize("sizes", [(20,), (1,) * 20, (4, 1, 9, 6)])
def test_a_text_is_read_once_however_it_comes(sizes: Sequence[int]) -> None:
    """In chunks of any size, blocks and steps in between: what a block sees is what the trainer shows it, window and all."""
    net = small_net()
    engine = engine_of(net)
    slot, start = engine.acquire(), 0
    for size in sizes:
        logits = read(engine, slot, TEXT[start : start + size])
        start += size
        torch.testing.assert_close(logits, trained(net, TEXT[:start]), rtol=1e-3, atol=1e-3)
        told = TEXT[:2]
        expected = trained(net, TEXT[:start], told)
        torch.testing.assert_close(step(engine, slot, told), expected, rtol=1e-3, atol=1e-3)
    window = net.config.window
    assert engine.context.positions(slot) == list(range(max(0, 20 - window), 20))


def test_masks_and_told_tokens_are_kept_by_nobody() -> None:
    """Blocks of other tokens leave the same context, bit for bit, and the next block sees none of them."""
    net = small_net()
    engine, other = engine_of(net), engine_of(net)
    slot, elsewhere = engine.acquire(), other.acquire()
    read(engine, slot, TEXT[:9])
    read(other, elsewhere, TEXT[:9])
    for told in ([1], [7, 7], [23, 0, 11]):
        step(engine, slot, told)
    ours, theirs = engine.context.held(np.array([slot])), other.context.held(np.array([elsewhere]))
    assert torch.equal(ours[0], theirs[0])
    assert np.array_equal(ours[1], theirs[1])
    assert torch.equal(read(engine, slot, TEXT[9:11]), read(other, elsewhere, TEXT[9:11]))


def test_attention_is_causal_in_the_text_and_not_in_the_block() -> None:
    """A later token changes no earlier row of the text; a told one changes the places before and behind it in its block."""
    net = small_net()
    tokens = torch.tensor([TEXT])
    changed = tokens.clone()
    changed[0, 12] += 1
    blocks = Blocks(torch.tensor([[9]]), torch.tensor([[3]]))
    texts, block = diffusion_states(net, tokens, blocks)
    other_texts, other_block = diffusion_states(net, changed, blocks)
    assert torch.equal(texts[0, :12], other_texts[0, :12])
    assert not torch.allclose(texts[0, 12:], other_texts[0, 12:])
    # Position 12 is slot 3: slots 1 and 2 stand before it, slot 0 is a row of the text.
    assert torch.equal(block[0, 0, 0], other_block[0, 0, 0])
    for slot in (1, 2, 3):
        assert not torch.allclose(block[0, 0, slot], other_block[0, 0, slot])


def test_sessions_of_one_pass_see_nothing_of_each_other() -> None:
    """One reads a piece of its prompt, one ends its text, one takes another step: the same as each alone."""
    net = small_net()
    engine, alone = engine_of(net), engine_of(net)
    first, second, third = (engine.acquire() for _ in range(3))
    read(engine, second, TEXT[:5])
    read(engine, third, TEXT[4:11])
    told = [1, 2]
    logits = engine.forward(
        [
            Rows(slot=first, tokens=TEXT[:6], parents=chain(TEXT[:6]), logits="none"),
            Rows(slot=second, tokens=TEXT[5:8], parents=chain(TEXT[5:8]), logits="last"),
            Rows(slot=third, tokens=told, parents=chain(told), logits="all"),
        ]
    )
    block = net.config.block
    assert logits.offsets == (0, 0, block, 2 * block - len(told))
    engine.rebase(Moves.one(first, range(6)))
    texts = (TEXT[:9], TEXT[:8])
    found = (read(engine, first, TEXT[6:9]), logits.of(1))
    for text, values in zip(texts, found, strict=True):
        expected = read(alone, alone.acquire(), text)
        torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-3)
    slot = alone.acquire()
    read(alone, slot, TEXT[4:11])
    torch.testing.assert_close(logits.of(2), step(alone, slot, told), rtol=1e-3, atol=1e-3)


def test_shapes_that_cannot_be_are_refused() -> None:
    """By the name of the field."""
    for name, value in (("block", 1), ("among", (0.5,)), ("head_dim", 5), ("window", 0)):
        with pytest.raises(ValueError, match=name):
            small_config(**{name: value})
