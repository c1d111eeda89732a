"""How well a speculator foresees a target, by depth, on texts that it has not seen."""

from __future__ import annotations

import torch

from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.heads.head_objective import num_positions
from outrider.actors.train.loop.depth_report import DepthReport, DepthSums

ROWS_PER_PASS = 8


@torch.no_grad()
def acceptance(net: SpeculatorNet, held: HeldOut, output: Logits) -> DepthReport:
    """Measures a net on some rows."""
    stages = net.config.num_stages
    begin = max(held.first - 1, 0)
    end = num_positions(held.tokens_BL.shape[1], stages)
    sums = DepthSums(stages)
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens_BL = held.tokens_BL[at : at + ROWS_PER_PASS]
        features_BLD = held.features_BLD[at : at + ROWS_PER_PASS]
        states = features_BLD[:, begin:end]
        for stage in range(stages):
            here = slice(begin + 1 + stage, end + 1 + stage)
            states = net.stage(stage, states, tokens_BL[:, here])
            own = net.logits(stage, states)
            sums.add(
                stage,
                scores=own,
                law=own.softmax(-1),
                target=output(features_BLD[:, here]),
                written=tokens_BL[:, begin + 2 + stage : end + 2 + stage],
            )
    return sums.report()
