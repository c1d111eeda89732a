"""Which known tokens the slots of a block foresee, by each reading of `layout_probe`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.draft.block.layout_probe import NUM_READINGS

LEAST_BLOCK = NUM_READINGS
"""Slots of a block that foresees a token by every reading."""


def labels_of(block: int) -> int:
    """Tokens behind a block's first that it foresees by every reading, none or fewer where there are less than `LEAST_BLOCK` slots."""
    return block - NUM_READINGS + 1


@torch.inference_mode()
def slot_hits(
    net: BlockNet,
    context: ContextCache,
    slot: int,
    text_T: NDArray[np.int64],
    anchors: Sequence[int],
) -> NDArray[np.bool_]:
    """Scores blocks that are told the token at their anchor and no other. One pass each, so as much memory as drafting for one session.

    Args:
        net: The net.
        context: What the target told.
        slot: Of the text.
        text_T: Known tokens, `labels_of` of them behind each anchor.
        anchors: Positions of the blocks' first slots.

    Returns:
        Whether the likeliest token of the slot that each reading looks at, given the token before, is the known one; bool [L, readings], for the
        tokens behind each anchor in order.
    """
    block, num = net.config.block, labels_of(net.config.block)
    is_told = torch.arange(block, device=context.device)[None] < 1
    hits = [np.zeros((0, NUM_READINGS), np.bool_)]
    for anchor in anchors:
        known = torch.from_numpy(text_T[anchor : anchor + num + 1]).to(context.device)
        rows, seen_1C = context.before(np.array([slot]), np.array([anchor]))
        states_BD = net.states(
            known[:1].expand(1, block),
            is_told,
            torch.tensor([anchor], device=context.device),
            rows,
            torch.from_numpy(seen_1C).to(context.device),
        )[0]
        unary_BV = net.unary(states_BD)
        of_block = [
            net.logits(unary_BV[first : first + num], states_BD[first : first + num], known[:-1])
            .argmax(dim=-1)
            .eq(known[1:])
            for first in range(NUM_READINGS)
        ]
        hits.append(torch.stack(of_block, dim=1).cpu().numpy())
    return np.concatenate(hits)
