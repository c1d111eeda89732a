"""How well a diffusion drafter foresees a target, by token, on texts that it has not seen: in one denoising step and in some."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outrider.actors.draft.diffusion.denoising import ONE_STEP, distances
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.train.block.block_evaluation import held_blocks
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
    told = [token - distance for token, distance in enumerate(distances(block, starts))]
    for tokens, features, blocks in held_blocks(held, block, held.features_BLD.shape[-1]):
        anchors = blocks.anchors_RA
        parts = {
            start: diffusion_states(net, tokens, Blocks(anchors, torch.full_like(anchors, start)))[
                1
            ]
            for start in starts
        }
        states = torch.stack([parts[start][:, :, k] for k, start in enumerate(told)], dim=2)
        sums.add_all(
            scores=net.unary(states),
            target=output(at_slots(features[:, :, -1], blocks, block)),
            written=at_slots(tokens, blocks, block, 1),
        )
    return sums.report()
