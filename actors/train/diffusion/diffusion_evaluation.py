"""How well a diffusion drafter foresees a target, by token, on texts that it has not seen: in one denoising step and in some."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outrider.actors.draft.diffusion.denoising import ONE_STEP, distances
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.train.block.block_evaluation import EVERY, ROWS_PER_PASS
from outrider.actors.train.block.block_objective import Blocks, at_slots
from outrider.actors.train.diffusion.diffusion_objective import diffusion_states
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import DepthReport, DepthSums


@torch.no_grad()
def diffusion_acceptance(
    net: DiffusionNet, held: HeldOut, output: Logits, starts: Sequence[int] = ONE_STEP
) -> DepthReport:
    """Measures the tokens of a block, each given that those before it were right: so what a step was told is the text itself.

    Args:
        net: The model.
        held: Rows with the target's states after the final norm.
        output: The target's output layer.
        starts: Tokens that each denoising step is told.
    """
    block = net.config.block
    sums = DepthSums(block)
    length, device = held.tokens_BL.shape[1], held.tokens_BL.device
    anchors = torch.arange(max(held.first - 1, 1), length - block, EVERY, device=device)
    told = [token - distance for token, distance in enumerate(distances(block, starts))]
    slots = torch.arange(block, device=device)
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens = held.tokens_BL[at : at + ROWS_PER_PASS]
        places = anchors.expand(len(tokens), -1)
        parts = {
            start: diffusion_states(net, tokens, Blocks(places, torch.full_like(places, start)))[1]
            for start in starts
        }
        states = torch.stack([parts[start][:, :, k] for k, start in enumerate(told)], dim=2)
        own = net.unary(states)
        rows = torch.arange(len(tokens), device=device)[:, None, None]
        lasts = held.features_BLD[at : at + ROWS_PER_PASS][rows, places[..., None] + slots]
        law = output(lasts)
        written = at_slots(tokens, Blocks(places, places), block, 1)
        sums.add_all(scores=own, target=law, written=written)
    return sums.report()
