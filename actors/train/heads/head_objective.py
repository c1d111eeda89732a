"""What a speculator is trained on: at every position, the next few tokens that it would draft there.

The state of position j has seen x[0..j], and the target itself draws x[j+1]. So stage i reads x[j+1+i] and predicts x[j+2+i]: the first token
that is predicted is two behind the state. A shift by one trains as well, and nothing of it is ever accepted.
"""

from __future__ import annotations

from typing import Literal

import torch

from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.loop.output_head import (
    LEAST_REST,
    LISTED,
    head_loss,
    listed_rule,
    next_token_rule,
)

Labels = Literal["tokens", "law"]
"""What the loss compares with: the tokens that stand there, or the target's distribution at that position."""


def num_positions(row_length: int, num_stages: int) -> int:
    """Positions of a row at which every stage has a token to predict."""
    return row_length - 1 - num_stages


def speculator_loss(
    net: SpeculatorNet,
    tokens_BL: torch.Tensor,
    features_BLD: torch.Tensor,
    *,
    first: int,
    labels: Labels,
    output: Logits,
) -> torch.Tensor:
    """The sum over stages of mean losses, nats per token; the cross-entropy, or the divergence from the target's distribution.

    Args:
        net: What is trained.
        tokens_BL: Rows of token ids.
        features_BLD: The target's hidden states at them.
        first: Position whose token is the first that was not given to the target; the state before it is the first that counts.
        labels: See `Labels`.
        output: The target's output layer, for `law`.
    """
    stages = net.config.num_stages
    begin, end = max(first - 1, 0), num_positions(tokens_BL.shape[1], stages)
    states = features_BLD[:, begin:end]
    total = features_BLD.new_zeros(())
    if labels == "law":
        listed_BLK, logprobs_BLK = listed_law(features_BLD[:, begin + 1 : end + stages], output)
    for stage in range(stages):
        states = net.stage(stage, states, tokens_BL[:, begin + 1 + stage : end + 1 + stage])
        vectors, table_VK = net.head(stage, states)
        if labels == "law":
            here = slice(stage, stage + end - begin)
            rule = listed_rule(
                listed_BLK[:, here].flatten(0, 1), logprobs_BLK[:, here].flatten(0, 1), LEAST_REST
            )
        else:
            rule = next_token_rule(tokens_BL[:, begin + 2 + stage : end + 2 + stage].flatten())
        total = total + head_loss(vectors.flatten(0, 1), table_VK, rule)
    return total


@torch.no_grad()
def listed_law(features_BLD: torch.Tensor, output: Logits) -> tuple[torch.Tensor, torch.Tensor]:
    """The likeliest tokens after positions, and their log-probabilities; a row of positions at a time."""
    tokens, logprobs = [], []
    for row_LD in features_BLD:
        logprob_LV = output(row_LD).log_softmax(-1)
        best = logprob_LV.topk(min(LISTED, logprob_LV.shape[1]), dim=-1, sorted=False)
        tokens.append(best.indices)
        logprobs.append(best.values)
    return torch.stack(tokens), torch.stack(logprobs)
