"""How well an EAGLE-3 net foresees a target, by depth, on texts that it has not seen."""

from __future__ import annotations

import torch

from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.train.eagle.eagle_objective import Unrolling
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import DepthReport, DepthSums

ROWS_PER_PASS = 4


@torch.no_grad()
def eagle_acceptance(net: EagleNet, held: HeldOut, output: Logits, depth: int) -> DepthReport:
    """Measures the tokens behind the newest one, each given that those before it were right.

    Args:
        net: The net.
        held: Rows with the states of the net's layers, and behind them those after the final norm.
        output: The target's output layer.
        depth: Tokens ahead.
    """
    config = net.config
    sums = DepthSums(depth)
    num, begin = held.tokens_BL.shape[1] - depth - 1, max(held.first - 1, 0)
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens = held.tokens_BL[at : at + ROWS_PER_PASS]
        features = held.features_BLD[at : at + ROWS_PER_PASS]
        last = features[..., -config.target_width :]
        taps = features[..., : -config.target_width].view(*tokens.shape, -1, config.target_width)
        for step, states in enumerate(Unrolling(net, tokens, taps, num).steps(depth)):
            own = net.logits(states[:, begin:])
            sums.add(
                step,
                scores=own,
                law=own.softmax(-1),
                target=output(last[:, begin + 1 + step : num + 1 + step]),
                written=tokens[:, begin + 2 + step : num + 2 + step],
            )
    return sums.report()
