"""Which known tokens the slots of blocks foresee, by each reading of `layout_probe`.

A block is asked for the token behind its first, which is the one that it is told: by reading f slot f predicts it. The Markov head is left out, since it says
the same to every slot: of two that are both right half of the time nobody can tell which one is.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.draft.block.layout_probe import NUM_READINGS

Int64s = NDArray[np.int64]

LEAST_BLOCK = NUM_READINGS
"""Slots of a block that has one for each reading."""

AT_ONCE = 8
"""Blocks of a pass: as much memory as drafting for so many sessions takes."""


@torch.inference_mode()
def slot_hits(
    net: BlockNet, context: ContextCache, slot: int, text_T: Int64s, anchors_N: Int64s
) -> NDArray[np.bool_]:
    """Scores blocks that are told the token at their anchor and no other.

    Args:
        net: The net; its blocks have `LEAST_BLOCK` slots at least.
        context: What the target told.
        slot: Of the text.
        text_T: Known tokens, those behind the anchors among them.
        anchors_N: Positions of the blocks' first slots.

    Returns:
        Whether the likeliest token of the slot of each reading is the known one behind the anchor; bool [N, readings].
    """
    device, block = context.device, net.config.block
    told_B = torch.arange(block, device=device) < 1
    hits = [np.zeros((0, NUM_READINGS), np.bool_)]
    for start in range(0, len(anchors_N), AT_ONCE):
        anchors_P = anchors_N[start : start + AT_ONCE]
        first_P1, label_P1 = (
            torch.from_numpy(text_T[anchors_P + k, None]).to(device) for k in range(2)
        )
        rows, seen_PC = context.before(np.full(len(anchors_P), slot), anchors_P)
        states_PBD = net.states(
            first_P1.expand(-1, block),
            told_B.expand(len(anchors_P), -1),
            torch.from_numpy(anchors_P).to(device),
            rows,
            torch.from_numpy(seen_PC).to(device),
        )
        likeliest_P3 = net.likeliest(states_PBD[:, :NUM_READINGS])
        hits.append(likeliest_P3.eq(label_P1).cpu().numpy())
    return np.concatenate(hits)
