"""How well a block drafter foresees a target, by slot, on texts that it has not seen: with all states there, and some tokens late."""

from __future__ import annotations

import torch

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.train.block.block_objective import Blocks, at_slots, block_states
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import DepthReport, DepthSums

EVERY = 3
"""Blocks begin at every third position."""

ROWS_PER_PASS = 4


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
    length, device = held.tokens_BL.shape[1], held.tokens_BL.device
    anchors = torch.arange(max(held.first - 1, 1), length - block, EVERY, device=device)
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens = held.tokens_BL[at : at + ROWS_PER_PASS]
        features = held.features_BLD[at : at + ROWS_PER_PASS].view(*tokens.shape, -1, config.width)
        places = anchors.expand(len(tokens), -1)
        told = torch.full_like(places, lag if reveals else 0)
        blocks = Blocks(places, told)
        states = block_states(net, tokens, features[:, :, : len(config.taps)], blocks)
        own = net.unary(states[:, :, lag:])
        if net.markov_head is not None:
            own = own + net.markov_head(at_slots(tokens, blocks, block)[:, :, lag:])
        rows = torch.arange(len(tokens), device=device)[:, None, None]
        slots = places[..., None] + torch.arange(lag, block, device=device)
        law = output(features[rows, slots, -1])
        written = at_slots(tokens, blocks, block, 1)[:, :, lag:]
        sums.add_all(scores=own, target=law, written=written)
    return sums.report()
