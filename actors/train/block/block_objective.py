"""What a block drafter is trained on: blocks at random places of texts, each with the target's states before it and no others.

Source: DSpark (DeepSeek-AI and Peking University 2026): per slot 0.1 cross-entropy with the token, 0.9 of the distance |p - p'|_1 from the target's
distribution, and for the confidence head the cross-entropy with 1 - |p - p'|_1 / 2; a slot counts exp(-k / 4). DFlash (arXiv 2602.06036): the
cross-entropy alone. Prefix reveal is ours: half of the blocks are told some tokens, and their later slots count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.train.loop.data_parallel import count_of_all, own_part, rows_of_all

CPU = torch.device("cpu")

TOKEN_SHARE = 0.1
"""Of the cross-entropy; the rest is the distance's."""

SLOT_DECAY = 4.0
"""Slots over which the weight of a slot falls by e."""

Objective = Literal["overlap", "tokens"]
"""DSpark's loss, or DFlash's."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blocks at places of R rows, A of each."""

    anchors_RA: torch.Tensor
    """Position of the first slot, at least 1."""

    revealed_RA: torch.Tensor
    """Tokens behind that one which the block is told."""


def random_blocks(
    num_rows: int,
    count: int,
    *,
    first: int,
    length: int,
    block: int,
    most_revealed: int,
    generator: torch.Generator,
    device: torch.device = CPU,
) -> Blocks:
    """Blocks at random.

    Args:
        num_rows: R; of one of several workers, which then gets its part of what is drawn for all.
        count: A.
        first: Position whose token is the first that may be predicted.
        length: Tokens of a row.
        block: Slots of a block; the tokens that they predict must lie in the row.
        most_revealed: Greatest number of tokens that one of them is told; half are told none.
        generator: Of the choice, on the CPU.
        device: Where the blocks are wanted.
    """
    shape = (rows_of_all(num_rows), count)
    anchors = torch.randint(max(first - 1, 1), length - block, shape, generator=generator)
    revealed = torch.zeros_like(anchors)
    if most_revealed:
        told = torch.randint(1, most_revealed + 1, shape, generator=generator)
        revealed = torch.where(torch.rand(shape, generator=generator) < 0.5, told, revealed)
    return Blocks(own_part(anchors).to(device), own_part(revealed).to(device))


def block_states(
    net: BlockNet, tokens_RL: torch.Tensor, features_RLKD: torch.Tensor, blocks: Blocks
) -> torch.Tensor:
    """h of every slot of some blocks, as if each were drafted alone. Shape (R, A, B, D).

    Args:
        net: The model.
        tokens_RL: Rows of token ids.
        features_RLKD: The target's states at them.
        blocks: Where they lie in the rows.
    """
    config = net.config
    (num_rows, length), count = tokens_RL.shape, blocks.anchors_RA.shape[1]
    positions_L = torch.arange(length, device=tokens_RL.device)
    rows = net.keys_values(features_RLKD.flatten(0, 1), positions_L.repeat(num_rows))
    every = rows.reshape(len(rows), num_rows, length, *rows.shape[2:])
    context = every[:, :, None].expand(-1, -1, count, -1, -1, -1, -1).flatten(1, 2)
    anchors_N, revealed_N = blocks.anchors_RA.flatten(), blocks.revealed_RA.flatten()
    before_NL = anchors_N[:, None] - positions_L
    seen_NL = (before_NL > 0) & (before_NL <= config.window)
    slots_B = torch.arange(config.block, device=tokens_RL.device)
    states = net.states(
        at_slots(tokens_RL, blocks, config.block).flatten(0, 1),
        slots_B <= revealed_N[:, None],
        anchors_N,
        context,
        seen_NL,
    )
    return states.reshape(num_rows, count, config.block, config.width)


def at_slots(values: torch.Tensor, blocks: Blocks, block: int, shift: int = 0) -> torch.Tensor:
    """What rows [R, L, ..] have at the place of each slot, or `shift` behind it. Shape (R, A, B, ..)."""
    slots_B = torch.arange(shift, block + shift, device=values.device)
    rows = torch.arange(len(values), device=values.device)[:, None, None]
    return values[rows, blocks.anchors_RA[..., None] + slots_B]


def block_loss(
    net: BlockNet,
    tokens_RL: torch.Tensor,
    features_RLKD: torch.Tensor,
    last_RLD: torch.Tensor,
    blocks: Blocks,
    objective: Objective,
) -> torch.Tensor:
    """Weighted mean over the slots that are not told their successor.

    Args:
        net: What is trained.
        tokens_RL: Rows of token ids.
        features_RLKD: The target's states at them, as `BlockConfig.taps`.
        last_RLD: Its states after the final norm, which its own distribution is made of.
        blocks: The blocks.
        objective: Which loss.
    """
    block = net.config.block
    states = block_states(net, tokens_RL, features_RLKD, blocks)
    slots_B = torch.arange(block, device=states.device)
    behind_RAB = slots_B - blocks.revealed_RA[..., None]
    counts_RAB = behind_RAB >= 0
    weights_N = torch.exp(-behind_RAB[counts_RAB] / SLOT_DECAY)
    known_N = at_slots(tokens_RL, blocks, block)[counts_RAB]
    wanted_N = at_slots(tokens_RL, blocks, block, 1)[counts_RAB]
    states_ND = states[counts_RAB]
    logits_NV = net.unary(states_ND)
    if net.markov_head is not None:
        logits_NV = logits_NV + net.markov_head(known_N)
    if objective == "tokens":
        loss_N = F.cross_entropy(logits_NV, wanted_N, reduction="none")
        return (loss_N * weights_N).sum() / count_of_all(weights_N.sum())
    with torch.no_grad():
        laws_NV = net.unary(at_slots(last_RLD, blocks, block)[counts_RAB]).softmax(-1)
    loss_N, distance_N = overlap_losses(logits_NV, wanted_N, laws_NV)
    confidence_N = net.confidence(states_ND, known_N)
    if confidence_N is not None:
        overlap_N = 1.0 - 0.5 * distance_N.detach()
        loss_N = loss_N + F.binary_cross_entropy_with_logits(
            confidence_N, overlap_N, reduction="none"
        )
    return (loss_N * weights_N).sum() / count_of_all(weights_N.sum())


def overlap_losses(
    logits_NV: torch.Tensor, wanted_N: torch.Tensor, laws_NV: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """DSpark's loss of each row, and |p - p'|_1 in it.

    Args:
        logits_NV: The model's.
        wanted_N: The token that was written.
        laws_NV: The target's distribution.
    """
    logprobs_NV = logits_NV.log_softmax(-1)
    distance_N = (logprobs_NV.exp() - laws_NV).abs().sum(-1)
    cross_N = -logprobs_NV.gather(1, wanted_N[:, None])[:, 0]
    return TOKEN_SHARE * cross_N + (1.0 - TOKEN_SHARE) * distance_N, distance_N
