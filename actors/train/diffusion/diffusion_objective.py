"""What a diffusion drafter is trained on: every row of the text foresees its successor, and blocks at random places fill their masks.

Source: Christopher et al. 2024, arXiv 2408.05636. Half of the blocks hold masks only, which is what the first denoising step sees; the others hold
their first tokens, as later steps do. A place counts exp(-k / 4), k places behind the last token that is known; the loss of a place is DSpark's.
"""

from __future__ import annotations

import torch

from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.train.block.block_objective import (
    SLOT_DECAY,
    Blocks,
    at_slots,
    overlap_losses,
)
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.loop.data_parallel import count_of_all


def diffusion_states(
    net: DiffusionNet, tokens_RL: torch.Tensor, blocks: Blocks
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the net makes of rows, and of blocks in them as if each were drafted alone.

    Args:
        net: The model.
        tokens_RL: Rows of token ids.
        blocks: Which: the anchor is the newest token of the text, what is revealed stands behind it.

    Returns:
        States of the rows' tokens [R, L, D]; and of the blocks [R, A, B, D], slot k at k places behind the anchor, whose own is slot 0.
    """
    config = net.config
    (num_rows, length), count = tokens_RL.shape, blocks.anchors_RA.shape[1]
    device = tokens_RL.device
    positions_L = torch.arange(length, device=device)
    behind_LL = positions_L[:, None] - positions_L
    seen_LL = (behind_LL >= 0) & (behind_LL < config.window)
    shape = (config.num_layers, num_rows, 0, 2, config.num_key_heads, config.head_dim)
    texts, rows = net.states(
        tokens_RL,
        torch.ones_like(tokens_RL, dtype=torch.bool),
        positions_L.expand(num_rows, -1),
        torch.zeros(shape, device=device),
        seen_LL[None, None],
    )
    context = rows[:, :, None].expand(-1, -1, count, -1, -1, -1, -1).flatten(1, 2)
    anchors_N, revealed_N = blocks.anchors_RA.flatten(), blocks.revealed_RA.flatten()
    slots_S = torch.arange(1, config.block, device=device)
    positions_NS = anchors_N[:, None] + slots_S
    behind_NSL = positions_NS[..., None] - positions_L
    seen_NSL = (positions_L <= anchors_N[:, None, None]) & (behind_NSL < config.window)
    own_NSS = seen_NSL.new_ones(len(anchors_N), config.block - 1, config.block - 1)
    states, _ = net.states(
        at_slots(tokens_RL, blocks, config.block).flatten(0, 1)[:, 1:],
        slots_S <= revealed_N[:, None],
        positions_NS,
        context,
        torch.cat((seen_NSL, own_NSS), dim=-1)[:, None],
    )
    firsts = texts.gather(1, blocks.anchors_RA[..., None].expand(-1, -1, config.width))
    states = states.view(num_rows, count, config.block - 1, config.width)
    return texts, torch.cat((firsts[:, :, None], states), dim=2)


def diffusion_loss(
    net: DiffusionNet,
    tokens_RL: torch.Tensor,
    last_RLD: torch.Tensor,
    output: Logits,
    blocks: Blocks,
    first: int,
) -> torch.Tensor:
    """Weighted mean over the rows of texts, and over the slots of blocks behind the last token that each holds.

    Args:
        net: What is trained.
        tokens_RL: Rows of token ids.
        last_RLD: The target's states after the final norm, which its own distribution is made of.
        output: The target's output layer.
        blocks: The blocks.
        first: Position of the first token that counts.
    """
    texts, states = diffusion_states(net, tokens_RL, blocks)
    slots_B = torch.arange(net.config.block, device=states.device)
    behind_RAB = slots_B - blocks.revealed_RA[..., None]
    # Slot 0 is a row of the text, which counts anyway.
    counts_RAB = (behind_RAB >= 0) & (slots_B > 0)
    begin = max(first - 1, 0)
    lasts_RABD = at_slots(last_RLD, blocks, net.config.block)
    states_ND = torch.cat((texts[:, begin:-1].flatten(0, 1), states[counts_RAB]))
    wanted_N = torch.cat(
        (
            tokens_RL[:, begin + 1 :].flatten(),
            at_slots(tokens_RL, blocks, net.config.block, 1)[counts_RAB],
        )
    )
    with torch.no_grad():
        lasts_ND = torch.cat((last_RLD[:, begin:-1].flatten(0, 1), lasts_RABD[counts_RAB]))
        laws_NV = output(lasts_ND).softmax(-1)
    weights_N = torch.cat(
        (
            torch.ones(len(states_ND) - int(counts_RAB.sum()), device=states.device),
            torch.exp(-behind_RAB[counts_RAB] / SLOT_DECAY),
        )
    )
    loss_N, _ = overlap_losses(net.unary(states_ND), wanted_N, laws_NV)
    return (loss_N * weights_N).sum() / count_of_all(weights_N.sum())
