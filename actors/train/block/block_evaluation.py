"""How well a block drafter foresees a target, by slot, on texts that it has not seen: with all states there, and some tokens late."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.train.block.block_objective import Blocks, at_slots, block_states
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import DepthReport, DepthSums

EVERY = 3
"""Blocks begin at every third position."""

ROWS_PER_PASS = 4


def held_blocks(
    held: HeldOut, block: int, width: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, Blocks]]:
    """Some rows at a time: tokens [R, L], states by layer [R, L, K, D], and blocks in them that are told nothing.

    Args:
        held: The rows.
        block: Slots of a block.
        width: D.
    """
    length, device = held.tokens_BL.shape[1], held.tokens_BL.device
    anchors_A = torch.arange(max(held.first - 1, 1), length - block, EVERY, device=device)
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens = held.tokens_BL[at : at + ROWS_PER_PASS]
        features = held.features_BLD[at : at + ROWS_PER_PASS].view(*tokens.shape, -1, width)
        anchors = anchors_A.expand(len(tokens), -1)
        yield tokens, features, Blocks(anchors, torch.zeros_like(anchors))


@torch.no_grad()
def block_acceptance(
    net: BlockNet, held: HeldOut, output: Logits, *, lag: int = 0, reveals: bool = False
) -> DepthReport:
    """Measures the tokens behind the newest one, each given that those before it were right.

    Args:
        net: The model.
        held: Rows with the states of the net's layers, and behind them those after the final norm.
        output: The target's output layer.
        lag: Tokens that were written since the newest states, beside the one that every block is told.
        reveals: Whether the block is told those; else it was drafted before they came.
    """
    config = net.config
    block, shown = config.block, config.block - lag
    sums = DepthSums(shown)
    for tokens, features, untold in held_blocks(held, block, config.width):
        told = torch.full_like(untold.anchors_RA, lag if reveals else 0)
        blocks = Blocks(untold.anchors_RA, told)
        states = block_states(net, tokens, features[:, :, : len(config.taps)], blocks)
        own = net.unary(states[:, :, lag:])
        if net.markov_head is not None:
            own = own + net.markov_head(at_slots(tokens, blocks, block)[:, :, lag:])
        law = output(at_slots(features[:, :, -1], blocks, block)[:, :, lag:])
        written = at_slots(tokens, blocks, block, 1)[:, :, lag:]
        sums.add_all(scores=own, target=law, written=written)
    return sums.report()
