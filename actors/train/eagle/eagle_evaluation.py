"""How well an EAGLE-3 net foresees a target, by depth, on texts that it has not seen."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.train.eagle.eagle_objective import Unrolling
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.heads.head_evaluation import CANDIDATES, DepthReport

ROWS_PER_PASS = 4


@torch.no_grad()
def eagle_acceptance(
    net: EagleNet, held: HeldOut, head_VD: torch.Tensor, depth: int
) -> DepthReport:
    """Measures the tokens behind the newest one, each given that those before it were right.

    Args:
        net: The net.
        held: Rows with the states of the net's layers, and behind them those after the final norm.
        head_VD: The target's output layer.
        depth: Tokens ahead.
    """
    config = net.config
    sums = torch.zeros(3, depth, dtype=torch.float64)
    chain, count = 0.0, 0
    num, begin = held.tokens_BL.shape[1] - depth - 1, max(held.first - 1, 0)
    for at in range(0, len(held.tokens_BL), ROWS_PER_PASS):
        tokens = held.tokens_BL[at : at + ROWS_PER_PASS]
        features = held.features_BLD[at : at + ROWS_PER_PASS]
        last = features[..., -head_VD.shape[1] :]
        taps = features[..., : -head_VD.shape[1]].view(*tokens.shape, -1, config.target_width)
        goes_on = torch.ones(len(tokens), num - begin, dtype=torch.bool, device=tokens.device)
        for step, states in enumerate(Unrolling(net, tokens, taps, num).steps(depth)):
            own = net.logits(states[:, begin:])
            here = slice(begin + 1 + step, num + 1 + step)
            law = F.linear(last[:, here], head_VD)
            best = own.topk(CANDIDATES, dim=-1).indices
            hits = best == law.argmax(-1, keepdim=True)
            overlap = torch.minimum(own.softmax(-1), law.softmax(-1)).sum(-1)
            measured = (hits[..., 0], hits.any(-1), overlap)
            sums[:, step] += torch.stack([value.double().sum() for value in measured]).cpu()
            goes_on &= best[..., 0] == tokens[:, begin + 2 + step : num + 2 + step]
            chain += float(goes_on.sum())
        count += goes_on.numel()
    first, among_four, overlaps = (
        tuple(round(value, 4) for value in row) for row in (sums / count).tolist()
    )
    return DepthReport(
        first=first,
        among_four=among_four,
        overlap=overlaps,
        tokens_a_pass=round(1.0 + chain / count, 3),
    )
