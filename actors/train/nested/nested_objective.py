"""What a nested draft learns: the target's law, at every exit at once.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955, which sums cross-entropies with the text's own tokens; here the divergence from the target's law.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.heads.head_objective import listed_law
from outrider.actors.train.loop.objective import mixed_precision
from outrider.actors.train.loop.output_head import LEAST_REST, head_loss, listed_rule


def exit_states(
    model: LlamaForCausalLM, tokens_BL: torch.Tensor, exits: Sequence[int]
) -> list[torch.Tensor]:
    """What goes into the output layer at each exit: the residual stream after so many layers, through the one final norm. Each [B, L, D]."""
    with mixed_precision(tokens_BL.device):
        output = model.model(input_ids=tokens_BL, use_cache=False, output_hidden_states=True)
        num_layers = model.config.num_hidden_layers
        # What transformers gives last has been through the norm already.
        return [
            output.last_hidden_state
            if layers == num_layers
            else model.model.norm(output.hidden_states[layers])
            for layers in exits
        ]


def nested_loss(
    model: LlamaForCausalLM,
    tokens_BL: torch.Tensor,
    states_BLD: torch.Tensor,
    output: Logits,
    exits: Sequence[int],
) -> torch.Tensor:
    """The sum over exits of KL(target || exit), mean over positions, nats.

    Args:
        model: What is trained.
        tokens_BL: Rows of token ids.
        states_BLD: What the target puts into its output layer at them.
        output: The target's output layer.
        exits: Layers of each exit.
    """
    listed_BLK, logprobs_BLK = listed_law(states_BLD, output)
    rule = listed_rule(listed_BLK.flatten(0, 1), logprobs_BLK.flatten(0, 1), LEAST_REST)
    total = states_BLD.new_zeros(())
    for states in exit_states(model, tokens_BL, exits):
        total = total + head_loss(states.flatten(0, 1), model.lm_head.weight, rule)
    return total
